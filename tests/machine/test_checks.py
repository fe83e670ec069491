"""Memory and register checks: each is provoked, and its neighbour just inside is clean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim

ADDRESS = "    mad.wide.u32 %rd1, %t, {scale}, %in;\n    add.u64 %rd1, %rd1, {offset};\n"


def _load(scale: int, offset: int, type_: str = "u32") -> str:
    return ADDRESS.format(scale=scale, offset=offset) + f"    ld.global.{type_} %r1, [%rd1];\n"


def test_bounds_name_the_nearest_buffer_and_the_distance(run: Any) -> None:
    assert run(_load(4, 128))[0].verdict == "clean"  # the last word of 64
    report, _ = run(_load(4, 132))
    (finding,) = report.findings
    assert (finding.class_, finding.lanes, finding.space) == ("oob-global", (31,), "global")
    assert "just past the end of 'in_p' (256 bytes)" in finding.message


def test_null_pointer(run: Any) -> None:
    report, _ = run("    mov.u64 %rd1, 0;\n    st.global.u32 [%rd1], %t;")
    (finding,) = report.findings
    assert (finding.class_, finding.address) == ("oob-global", 0)
    assert finding.message == "4-byte access at global address 0x0: a null pointer"
    (finding,) = run("    mov.u64 %rd1, 8;\n    st.global.u32 [%rd1], %t;")[0].findings
    assert finding.message.endswith(": a null pointer and 8 bytes")


@pytest.mark.parametrize(
    ("offset", "type_", "where"),
    [
        (-1, "u8", "1 byte before 'in_p' (256 bytes)"),
        (-8, "u32", "8 bytes before 'in_p' (256 bytes)"),
        (257, "u8", "1 byte past the end of 'in_p' (256 bytes)"),
        (260, "u32", "4 bytes past the end of 'in_p' (256 bytes)"),
        (1 << 45, "u32", "far from every buffer"),
    ],
)
def test_where_an_address_lies(run: Any, offset: int, type_: str, where: str) -> None:
    (finding,) = run(_load(0, offset, type_))[0].findings
    assert finding.message.endswith(where)


def test_an_access_across_the_end(run: Any) -> None:
    data = np.zeros(63, np.uint32)
    (finding,) = run("    ld.global.v2.u32 {%r1, %r2}, [%in+248];", data=data)[0].findings
    assert finding.message.endswith("its last 4 bytes past the end of 'in_p' (252 bytes)")


def test_alignment(run: Any) -> None:
    report, _ = run(_load(4, 2))
    assert report.verdict == "misaligned-global"
    assert "not a multiple of 4 (off by 2)" in report.findings[0].message


def test_vector_alignment_is_that_of_the_whole_access(run: Any) -> None:
    body = "    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in+8];"
    report, _ = run(body)
    assert report.verdict == "misaligned-global"
    assert run(body.replace("+8", "+16"))[0].verdict == "clean"


def test_shared_bounds(run: Any) -> None:
    body = "    mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %t;"
    assert run(body, declare=".shared .b32 s[32];")[0].verdict == "clean"
    report, _ = run(body, declare=".shared .b32 s[31];")
    assert (report.verdict, report.findings[0].lanes) == ("oob-shared", (31,))
    assert report.findings[0].message.endswith(
        "just past the end of the 124 bytes of shared memory"
    )


def test_a_launch_without_shared_memory(run: Any) -> None:
    body = "    ld.shared.u32 %r1, [s];"
    (finding,) = run(body, before=".extern .shared .align 4 .b8 s[];\n")[0].findings
    assert finding.message.endswith("address 0x0: this launch has no shared memory")
    assert finding.help is not None and "--smem" in finding.help


def test_local_bounds(run: Any) -> None:
    body = "    mov.u64 %rd1, v; st.local.u32 [%rd1+{}], %t;"
    assert run(body.format(12), declare=".local .b32 v[4];")[0].verdict == "clean"
    assert run(body.format(16), declare=".local .b32 v[4];")[0].verdict == "oob-local"


def test_undefined_bytes_of_a_buffer(run: Any) -> None:
    data = ptxsim.undefined(64, np.uint32)
    use = _load(4, 0) + "    st.global.u32 [%mine], %r1;\n"
    report, _ = run(use, data=data)
    assert report.verdict == "uninit-global"
    (finding,) = report.findings
    assert (finding.other_line, finding.address is not None) == (finding.line + 1, True)
    assert "reads byte 0 of 'in_p', which was never written" in finding.message
    assert run(_load(4, 0), data=data)[0].verdict == "clean"
    written = "    mad.wide.u32 %rd1, %t, 4, %in;\n    st.global.u32 [%rd1], %t;\n" + use
    assert run(written, data=ptxsim.undefined(64, np.uint32))[0].verdict == "clean"


def test_undefined_bytes_that_stay_are_counted(run: Any) -> None:
    out = ptxsim.undefined(40, np.uint32)
    report, _ = run("    st.global.u32 [%mine], %t;", out=out)
    assert report.verdict == "clean"
    assert report.outputs["out_p"].undefined_bytes == 32


def test_write_to_a_read_only_array(run: Any) -> None:
    data = np.arange(64, dtype=np.uint32)
    data.flags.writeable = False
    store = "    mad.wide.u32 %rd1, %t, 4, %in; st.global.u32 [%rd1], %t;"
    report, _ = run(store, data=data)
    assert report.verdict == "write-to-readonly"
    assert run(store)[0].verdict == "clean"


@pytest.mark.parametrize(
    "use",
    [
        "st.global.u32 [%mine], %r9;",
        "setp.eq.u32 %p1, %r9, 0;\n    @%p1 bra X;\nX:",
        "cvt.u64.u32 %rd1, %r9; add.u64 %rd1, %rd1, %in; ld.global.u32 %r1, [%rd1];",
        "add.u32 %r8, %r9, 1; st.global.u32 [%mine], %r8;",
    ],
)
def test_undefined_register(run: Any, use: str) -> None:
    report, _ = run("    " + use)
    assert report.findings[0].class_ == "uninit-register"
    assert run("    mov.u32 %r9, 0;\n    " + use)[0].verdict == "clean"


def test_register_defined_in_some_lanes_only(run: Any) -> None:
    body = (
        "    setp.lt.u32 %p1, %t, 4;\n    @%p1 mov.u32 %r9, 1;\n    {} st.global.u32 [%mine], %r9;"
    )
    report, _ = run(body.format(""))
    assert report.findings[0].lanes == tuple(range(4, 32))
    assert run(body.format("@%p1"))[0].verdict == "clean"


def test_generic_addresses_of_three_spaces(run: Any) -> None:
    declare = ".shared .b32 s[32]; .local .b32 v[1];"
    body = """
    shl.b32 %r1, %t, 2; cvt.u64.u32 %rd1, %r1;
    mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2; add.u64 %rd2, %rd2, %rd1;
    mov.u64 %rd3, v; cvta.local.u64 %rd3, %rd3;
    add.u64 %rd4, %in, %rd1;
    rem.u32 %r2, %t, 3;
    setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 1;
    selp.b64 %rd5, %rd2, %rd3, %p2; selp.b64 %rd5, %rd4, %rd5, %p1;
    st.u32 [%rd5], %t;
    ld.u32 %r3, [%rd5];
    isspacep.shared %p3, %rd5; selp.u32 %r4, 1000, 0, %p3; add.u32 %r3, %r3, %r4;
    st.global.u32 [%mine], %r3;"""
    report, out = run(body, declare=declare)
    lanes = np.arange(32)
    assert report.verdict == "clean"
    assert (out == lanes + np.where(lanes % 3 == 1, 1000, 0)).all()


def test_unsupported_stops_only_when_it_is_reached(run: Any) -> None:
    body = "    setp.gt.u32 %p1, %t, 99;\n    @%p1 bra X;\n    bra END;\nX: {}\nEND:"
    unknown = "istypep.texref %p1, %mine;"
    report, _ = run(body.format(unknown))
    assert report.verdict == "clean"
    report, _ = run(body.format(unknown).replace("%t, 99", "%t, 3"))
    assert (report.verdict, report.exit_code) == ("unsupported", 4)


def test_a_variable_indexed_by_a_register(run: Any) -> None:
    body = """
    shl.b32 %r1, %t, 2;
    st.shared.u32 s[%r1], %t;
    ld.shared.u32 %r2, s[%r1];
    st.global.u32 [%mine], %r2;"""
    report, out = run(body, declare=".shared .b32 before[3]; .shared .b32 s[32];")
    assert report.verdict == "clean"
    assert (out == np.arange(32)).all()


def test_dynamic_shared_memory_behind_a_static_part_of_odd_size(run: Any) -> None:
    """Four static bytes, then 16 dynamic ones at the next multiple of 16."""
    body = "    mov.u32 %r1, dyn; st.shared.u32 [%r1+{}], %t;"
    options: dict[str, Any] = {
        "declare": ".shared .b32 s;", "before": ".extern .shared .align 16 .b8 dyn[];\n",
        "block": 1, "smem": 16,
    }  # fmt: skip
    assert run(body.format(12), **options)[0].verdict == "clean"
    assert run(body.format(16), **options)[0].verdict == "oob-shared"


def test_shared_memory_of_other_entries_does_not_count() -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.shared .b32 common;\n"
    entry = """
.entry k{}(.param .u64 p) {{
    .reg .b64 %rd; .reg .b32 %r<3>; .shared .align 16 .b8 big[49136];
    ld.param.u64 %rd, [p];
    st.shared.u32 [common], 1; st.shared.u32 [big], 2; st.shared.u32 [big+49132], 3;
    ld.shared.u32 %r1, [common]; ld.shared.u32 %r2, [big]; add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd], %r1;
    ret;
}}
"""
    module = ptxsim.assemble(head + "".join(entry.format(n) for n in range(6)))
    for name in module.entries:
        out = np.zeros(1, np.uint32)
        report = module[name].launch(grid=1, block=1, args=[out])
        assert (report.verdict, out[0]) == ("clean", 3)


def test_an_extern_variable_that_nothing_defines_is_undefined(run: Any) -> None:
    use = "    ld.global.u32 %r1, [e];\n    st.global.u32 [%mine], %r1;"
    report, _ = run(use, before=".extern .global .b32 e;\n")
    assert report.verdict == "uninit-global"
    assert run(use, before=".global .b32 e;\n")[0].verdict == "clean"


def test_the_address_of_a_shared_variable_is_no_initialiser() -> None:
    """ptxas: "Variable used as initial value not in .global or .const state space"."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.shared .b32 s;\n"
    with pytest.raises(ptxsim.PtxError) as error:
        ptxsim.assemble(head + ".global .u64 p = s;\n")
    assert [d.code for d in error.value.diagnostics] == ["PTX108"]

"""What wmma checks at run time: which fragment a register holds, and the storage of tiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_wmma_fragments import BITS, LARGE, LAYOUTS, header, registers, tile_of

import ptxsim
from ptxsim.cli import main

A, B, C, D = ("{" + ", ".join(f"%{x}{k}" for k in range(8)) + "}" for x in "abcd")
REGISTERS = (
    ".reg .pred %p<4>; .reg .b32 %r<8>, %t, %a<8>, %b<8>, %i<8>, %j<8>;"
    " .reg .f32 %c<8>, %d<8>, %e<8>; .reg .b64 %m, %s;"
)
LOAD_A = f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%m];"
LOAD_B = f"wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {B}, [%m];"
LOAD_C = f"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {C}, [%m];"
MMA = f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {D}, {A}, {B}, {C};"
#: behind what other lanes may still load
STORE = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%m+4096], {D};"
USE = f"{MMA} // here"
#: The lines that load right fragments
LOADS = f"{LOAD_A}\n{LOAD_B}\n{LOAD_C}\n"


def text_of(body: str, head: str = ".version 8.0\n.target sm_80\n", before: str = "") -> str:
    """A kernel whose only parameter is a buffer, at %m."""
    return (
        f"{head}.address_size 64\n{before}.visible .entry k(.param .u64 p)\n{{\n{REGISTERS}\n"
        f"ld.param.u64 %m, [p];\nmov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )


def launch(text: str, memory: NDArray[Any] | None = None, **options: Any) -> ptxsim.Report:
    """Run a kernel of one warp on zeros, or on ``memory``."""
    if memory is None:
        memory = np.zeros(8192, np.uint8)
    return ptxsim.assemble(text).kernel().launch(grid=1, block=32, args=[memory], **options)


def here(text: str) -> int:
    """The line with the comment ``here``."""
    return 1 + text[: text.index("// here")].count("\n")


def only_fragment_error(body: str, **more: str) -> ptxsim.Finding:
    """The only finding, of class wmma-fragment, at the line marked ``here``."""
    text = text_of(body, **more)
    (finding,) = launch(text).findings
    assert (finding.class_, finding.severity.value) == ("wmma-fragment", "error")
    assert finding.line == here(text)
    return finding


def copies(pairs: Iterator[tuple[str, str]], guard: str = "") -> str:
    """Moves of registers, one a line."""
    return "".join(f"{guard} mov.b32 {to}, {of};\n" for to, of in pairs)


def eight(to: str, of: str) -> Iterator[tuple[str, str]]:
    """The eight registers of two fragments."""
    return ((f"%{to}{k}", f"%{of}{k}") for k in range(8))


class TestRightUse:
    @pytest.mark.parametrize(
        "middle",
        [
            "",
            "mov.f32 %c0, 0f3f800000;",  # one element set
            "mul.f32 %c1, %c2, 0f40000000;",  # an element scaled
            f"{LOAD_A}",  # loaded twice
            copies(eight("i", "a")) + copies(eight("a", "i")),  # out and back
            f"{MMA}\n{copies(eight('c', 'd'))}",  # accumulate: D becomes C
        ],
        ids=["plain", "filled", "scaled", "again", "copied", "accumulated"],
    )  # fmt: skip
    def test_no_error(self, middle: str) -> None:
        report = launch(text_of(f"{LOADS}{middle}\n{MMA}\n{STORE}"))
        assert report.clean
        assert [f for f in report.findings if f.severity.value == "error"] == []

    def test_accumulator_filled_by_moves(self) -> None:
        fill = "".join(f"mov.f32 %c{k}, 0f00000000;\n" for k in range(8))
        assert not launch(text_of(f"{LOAD_A}\n{LOAD_B}\n{fill}{MMA}\n{STORE}")).findings

    def test_scaled_result_is_stored(self) -> None:
        scale = "".join(f"mul.f32 %d{k}, %d{k}, 0f40000000;\n" for k in range(8))
        report = launch(text_of(f"{LOADS}{MMA}\n{scale}{STORE}"))
        assert not report.findings

    def test_registers_used_again(self) -> None:
        """A's registers hold numbers, then a fragment of B."""
        again = LOAD_B.replace(B, A)
        body = f"{LOADS}add.u32 %a0, %t, 1;\n{again}\n{MMA.replace(f'{A}, {B}', f'{B}, {A}')}"
        body = body.replace(LOAD_B + "\n", LOAD_A.replace(A, B) + "\n")
        assert not launch(text_of(body)).findings

    def test_register_returned_by_a_call(self) -> None:
        function = ".func (.reg .b32 r) seven(.reg .b32 n) { mov.b32 r, 7; ret; }\n"
        wrong = copies(eight("a", "b"))
        calls = "".join(f"call (%a{k}), seven, (%t);\n" for k in range(8))
        assert not launch(text_of(f"{LOADS}{wrong}{calls}{MMA}", before=function)).findings
        only_fragment_error(f"{LOADS}{calls}{wrong}{USE}", before=function)

    def test_loop(self) -> None:
        loop = (
            "mov.u32 %r0, 3;\n"
            f"again: {MMA}\n{copies(eight('c', 'd'))}sub.u32 %r0, %r0, 1;\n"
            "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra again;\n"
        )
        assert not launch(text_of(LOADS + loop + STORE)).findings


OTHER = {
    "use": (LOAD_B.replace(B, A), "matrix b"),
    "shape": (LOAD_A.replace("m16n16k16", "m32n8k16"), "m32n8k16"),
    "layout": (LOAD_A.replace(".row", ".col"), ".col"),
}
#: Eight-bit products, whose fragments have two registers
SMALL = "{%a0, %a1}"
MMA_S8 = (
    "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32"
    f" {C.replace('%c', '%i')}, {SMALL}, {{%b0, %b1}}, {C.replace('%c', '%j')}; // here"
)


class TestWrongUse:
    @pytest.mark.parametrize("what", list(OTHER))
    def test_factor(self, what: str) -> None:
        line, word = OTHER[what]
        finding = only_fragment_error(f"{LOADS}{line}\n{USE}")
        assert word in finding.message.split("but it holds")[1]

    @pytest.mark.parametrize(("type_", "clean"), [("s8", True), ("u8", False)])
    def test_type(self, type_: str, clean: bool) -> None:
        lines = [
            f"wmma.load.a.sync.aligned.row.m16n16k16.global.{type_} {SMALL}, [%m];",
            "wmma.load.b.sync.aligned.col.m16n16k16.global.s8 {%b0, %b1}, [%m];",
            f"wmma.load.c.sync.aligned.row.m16n16k16.global.s32 {C.replace('%c', '%j')}, [%m];",
            MMA_S8,
        ]
        if clean:
            assert not launch(text_of("\n".join(lines))).findings
        else:
            assert "m16n16k16.u8" in only_fragment_error("\n".join(lines)).message

    def test_layout_of_the_product(self) -> None:
        only_fragment_error(LOADS + USE.replace(".row.col", ".row.row"))
        only_fragment_error(LOADS + USE.replace(".row.col", ".col.col"))

    @pytest.mark.parametrize(("one", "other"), [("a0", "a1"), ("b3", "b7"), ("c0", "c5")])
    def test_swapped_registers(self, one: str, other: str) -> None:
        spare = "%e0" if one[0] == "c" else "%i0"
        swap = f"mov.b32 {spare}, %{one};\nmov.b32 %{one}, %{other};\nmov.b32 %{other}, {spare};\n"
        finding = only_fragment_error(LOADS + swap + USE)
        assert f"%{one}" in finding.message or f"%{other}" in finding.message

    def test_order_of_the_operand(self) -> None:
        only_fragment_error(LOADS + USE.replace("%a0, %a1", "%a1, %a0"))

    def test_factors_exchanged(self) -> None:
        only_fragment_error(LOADS + USE.replace(f"{A}, {B}", f"{B}, {A}"))

    def test_accumulator_as_factor(self) -> None:
        only_fragment_error(LOADS + copies(eight("a", "c")) + USE)

    def test_result_stored_as_another_shape(self) -> None:
        store = f"{STORE} // here".replace("m16n16k16", "m32n8k16")
        assert "m16n16k16" in only_fragment_error(f"{LOADS}{MMA}\n{store}").message

    def test_accumulator_of_another_shape(self) -> None:
        line = LOAD_C.replace("m16n16k16", "m8n32k16")
        only_fragment_error(f"{LOADS}{line}\n{USE}")

    def test_through_copies(self) -> None:
        only_fragment_error(LOADS + copies(eight("i", "b")) + copies(eight("a", "i")) + USE)

    def test_through_guarded_moves(self) -> None:
        """Lane 5 alone has a register of B in A."""
        setup = "setp.eq.u32 %p0, %t, 5;\n"
        finding = only_fragment_error(LOADS + setup + "@%p0 mov.b32 %a2, %b2;\n" + USE)
        assert finding.lanes == (5,)
        # ... and both moved and moved back
        back = "mov.b32 %i2, %a2;\n@%p0 mov.b32 %a2, %b2;\n@%p0 mov.b32 %a2, %i2;\n"
        assert not launch(text_of(LOADS + setup + back + MMA)).findings

    def test_through_a_loop(self) -> None:
        """Right in the first round, wrong in the second, where the loads are exchanged."""
        loop = (
            "mov.u32 %r0, 2;\n"
            f"again: {USE}\n{copies(eight('i', 'a'))}{copies(eight('a', 'b'))}"
            f"{copies(eight('b', 'i'))}sub.u32 %r0, %r0, 1;\n"
            "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra again;\n"
        )
        only_fragment_error(LOADS + loop)

    def test_never_loaded(self) -> None:
        finding = only_fragment_error(f"{LOAD_A}\n{LOAD_C}\n{USE}")
        assert "%b0 was never loaded" in finding.message

    def test_written_in_some_lanes(self) -> None:
        guarded = "setp.lt.u32 %p0, %t, 20;\n@%p0 ld.global.b32 %a0, [%m];\n"
        rest = "".join(f"mov.b32 %a{k}, 0;\n" for k in range(1, 8))
        finding = only_fragment_error(f"{guarded}{rest}{LOAD_B}\n{LOAD_C}\n{USE}")
        assert finding.lanes == tuple(range(20, 32))
        whole = guarded.replace("@%p0 ", "")
        assert not launch(text_of(f"{whole}{rest}{LOAD_B}\n{LOAD_C}\n{MMA}")).findings


class TestWarps:
    """Tags are those of each warp: one goes another way than its neighbours."""

    def findings(self, body: str, block: int = 96) -> tuple[ptxsim.Finding, ...]:
        kernel = ptxsim.assemble(text_of(body)).kernel()
        return kernel.launch(grid=2, block=block, args=[np.zeros(8192, np.uint8)]).findings

    SECOND = "shr.u32 %r1, %t, 5;\nsetp.eq.u32 %p0, %r1, 1;\n"

    def test_guarded_load(self) -> None:
        wrong = LOAD_B.replace(B, A)
        body = f"{LOADS}{self.SECOND}@%p0 {wrong}\n{USE}"
        (finding,) = self.findings(body)
        assert (finding.class_, finding.warp, finding.count) == ("wmma-fragment", 1, 8 * 64)
        assert finding.line == here(text_of(body))
        # the same when the warp takes a branch to it
        branch = f"@!%p0 bra past;\n{wrong}\npast:\n"
        (finding,) = self.findings(f"{LOADS}{self.SECOND}{branch}{USE}")
        assert (finding.class_, finding.warp) == ("wmma-fragment", 1)

    def test_right_in_every_warp(self) -> None:
        again = f"@%p0 {LOAD_A}\n"
        assert not self.findings(f"{LOADS}{self.SECOND}{again}{MMA}")
        # ... and repaired in the warp that had gone wrong
        wrong = f"@%p0 {LOAD_B.replace(B, A)}\n"
        assert not self.findings(f"{LOADS}{self.SECOND}{wrong}{again}{MMA}")

    def test_guard_that_is_false_everywhere(self) -> None:
        never = "setp.eq.u32 %p0, %t, 1000;\n"
        assert not self.findings(f"{LOADS}{never}@%p0 {LOAD_B.replace(B, A)}\n{MMA}")

    def test_other_fragments_in_other_warps(self) -> None:
        """The same registers hold A in one warp and B in the other, each used rightly."""
        swapped = MMA.replace(f"{A}, {B}", f"{B}, {A}")
        loads = f"{LOAD_B.replace(B, A)}\n{LOAD_A.replace(A, B)}\n"
        # a tile for each of two warps in two CTAs
        place = (
            "mov.u32 %r2, %ctaid.x;\nmad.lo.u32 %r2, %r2, 2, %r1;\n"
            "mad.wide.u32 %s, %r2, 1024, %m;\n"
        )
        body = (
            f"{LOADS}{self.SECOND}@%p0 bra second;\n{MMA}\nbra end;\n"
            f"second:\n{loads}{swapped}\nend:\n{place}{STORE.replace('%m', '%s')}"
        )
        assert self.findings(body, block=64) == ()


# -- storage of tiles --------------------------------------------------------------------------

#: Size of a fragment in bytes, to which every line of its tile is aligned: PTX ISA 9.1, "Matrix
#: Storage for WMMA" (registers by "Matrix Fragments for WMMA"), for m16n16k16, m32n8k16, m8n32k16.
LARGE_ALIGNMENT = {
    ("a", "f16"): (32, 32, 32), ("b", "f16"): (32, 32, 32),
    ("a", "bf16"): (16, 32, 8), ("b", "bf16"): (16, 8, 32),
    ("a", "s8"): (8, 16, 4), ("b", "s8"): (8, 4, 16),
    ("a", "u8"): (8, 16, 4), ("b", "u8"): (8, 4, 16),
    ("c", "f16"): (16, 16, 16), ("c", "f32"): (32, 32, 32), ("c", "s32"): (32, 32, 32),
}  # fmt: skip
SMALL_ALIGNMENT = {
    ("a", "m16n16k8", "tf32"): 16, ("b", "m16n16k8", "tf32"): 16, ("c", "m16n16k8", "f32"): 32,
    ("a", "m8n8k4", "f64"): 8, ("b", "m8n8k4", "f64"): 8, ("c", "m8n8k4", "f64"): 16,
    ("a", "m8n8k32", "s4"): 4, ("b", "m8n8k32", "s4"): 4,
    ("a", "m8n8k32", "u4"): 4, ("b", "m8n8k32", "u4"): 4, ("c", "m8n8k32", "s32"): 8,
    ("a", "m8n8k128", "b1"): 4, ("b", "m8n8k128", "b1"): 4, ("c", "m8n8k128", "s32"): 8,
}  # fmt: skip
#: use, shape, type, layout, alignment
TILES = [
    (use, shape, type_, layout, alignment)
    for (use, shape, type_), alignment in (
        *(
            ((use, shape, type_), alignment)
            for (use, type_), row in LARGE_ALIGNMENT.items()
            for shape, alignment in zip(LARGE, row, strict=True)
        ),
        *SMALL_ALIGNMENT.items(),
    )
    for layout in LAYOUTS
    if BITS[type_] >= 8 or layout == ("row" if use == "a" else "col")
]
WIDE = 512  # elements: more than any line, and a multiple of every alignment


def transfer(
    use: str, shape: str, type_: str, layout: str, operation: str = "load", where: str = "%m"
) -> str:
    """A wmma.load or wmma.store without its stride, over registers %w."""
    count = registers(use, shape, type_)
    word = {"f32": ".f32", "f64": ".f64"}.get(type_, ".b32")
    names = "{" + ", ".join(f"%w{k}" for k in range(count)) + "}"
    if operation == "store":
        kind = {"f32": "f32 0f00000000", "f64": "f64 0d0000000000000000"}.get(type_, "b32 0")
        move, zero = kind.split()
        clear = "".join(f"mov.{move} %w{k}, {zero};\n" for k in range(count))
        opcode = f"wmma.store.d.sync.aligned.{layout}.{shape}.global.{type_}"
        return f".reg {word} %w<{count}>;\n{clear}{opcode} [{where}], {names}"
    opcode = f"wmma.load.{use}.sync.aligned.{layout}.{shape}.global.{type_}"
    return f".reg {word} %w<{count}>;\n{opcode} {names}, [{where}]"


def precondition(line: str, setup: str = "", rule: str = "ptx") -> ptxsim.Finding | None:
    """The finding of class wmma-precondition at a transfer, None if the run is clean."""
    text = text_of(f"{setup}{line}; // here")
    findings = launch(text, np.zeros(1 << 17, np.uint8), wmma_rule=rule).findings
    if not findings:
        return None
    (finding,) = findings
    assert (finding.class_, finding.line) == ("wmma-precondition", here(text))
    return finding


@pytest.mark.parametrize(("use", "shape", "type_", "layout", "alignment"), TILES)
def test_alignment(use: str, shape: str, type_: str, layout: str, alignment: int) -> None:
    """Base and stride are multiples of the fragment's size; half of it is not enough."""
    elements = 8 * alignment // BITS[type_]
    half = elements // 2
    for operation in ("load", "store") if use == "c" else ("load",):
        line = transfer(use, shape, type_, layout, operation)
        moved = line.replace("[%m]", f"[%m+{alignment}]")
        assert precondition(f"{moved}, {WIDE}") is None
        assert precondition(f"{line}, {WIDE + elements}") is None
        assert precondition(line) is None
        finding = precondition(line.replace("[%m]", f"[%m+{alignment // 2}]") + f", {WIDE}")
        assert finding is not None
        assert "base address" in finding.message
        assert f"is not a multiple of {alignment}," in finding.message
        assert finding.values["rule"] == "ptx"
        if half:  # f64 has one element in a fragment: every stride is a multiple
            finding = precondition(f"{line}, {WIDE + half}")
            assert finding is not None
            assert f"stride of {(WIDE + half) * BITS[type_] // 8} bytes" in finding.message


@pytest.mark.parametrize(("use", "shape", "type_", "layout", "alignment"), TILES)
def test_stride_below_the_extent(
    use: str, shape: str, type_: str, layout: str, alignment: int
) -> None:
    rows, columns = tile_of(use, shape)
    extent = rows if layout == "col" else columns
    elements = 8 * alignment // BITS[type_]
    short = (extent - 1) // elements * elements
    line = transfer(use, shape, type_, layout)
    finding = precondition(f"{line}, {short}")
    assert finding is not None
    assert f"stride of {short} elements is less than the {extent} elements" in finding.message
    assert precondition(f"{line}, {extent}") is None


@pytest.mark.parametrize(("use", "shape", "type_", "layout", "alignment"), TILES[::5])
class TestLanesThatDiffer:
    def test_stride(self, use: str, shape: str, type_: str, layout: str, alignment: int) -> None:
        line = transfer(use, shape, type_, layout) + ", %r0"
        setup = f"mov.u32 %r0, {WIDE};\nsetp.eq.u32 %p0, %t, 17;\n"
        assert precondition(line, setup) is None
        finding = precondition(line, f"{setup}@%p0 mov.u32 %r0, {2 * WIDE};\n")
        assert finding is not None
        assert (finding.lanes, "different strides" in finding.message) == ((17,), True)

    def test_address(self, use: str, shape: str, type_: str, layout: str, alignment: int) -> None:
        line = transfer(use, shape, type_, layout) + f", {WIDE}"
        setup = f"setp.eq.u32 %p0, %t, 17;\n@%p0 add.u64 %m, %m, {alignment};\n"
        finding = precondition(line, setup)
        assert finding is not None
        assert (finding.lanes, "different base addresses" in finding.message) == ((17,), True)
        everywhere = setup.replace("@%p0 ", "")
        assert precondition(line, everywhere) is None


class TestCudaRule:
    """The C++ guide's load_matrix_sync: base at 32 bytes, stride a multiple of 16 bytes."""

    # use, shape, type, base offset, stride, fault by the ISA, fault by the guide
    CASES = [
        ("a", "m16n16k16", "f16", 0, 24, "stride of 48 bytes", ""),
        ("a", "m16n16k16", "s8", 8, 24, "", "base address"),
        ("a", "m16n16k16", "s8", 0, 24, "", "stride of 24 bytes"),
        ("a", "m16n16k16", "bf16", 16, 16, "", "base address"),
        ("b", "m32n8k16", "s8", 0, 8, "", "stride of 8 bytes"),
        ("c", "m16n16k16", "f32", 0, 20, "stride of 80 bytes", ""),
        ("c", "m16n16k16", "f32", 16, 16, "base address", "base address"),
        ("a", "m16n16k16", "f16", 0, 20, "stride of 40 bytes", "stride of 40 bytes"),
        ("a", "m16n16k16", "f16", 32, 32, "", ""),
    ]

    @pytest.mark.parametrize("case", CASES)
    def test_launch(self, case: tuple[str, str, str, int, int, str, str]) -> None:
        use, shape, type_, offset, stride, *faults = case
        line = transfer(use, shape, type_, "row").replace("[%m]", f"[%m+{offset}]") + f", {stride}"
        words = ("rule of the PTX ISA", "rule of the CUDA C++ guide")
        for rule, fault, word in zip(("ptx", "cuda"), faults, words, strict=True):
            finding = precondition(line, rule=rule)
            assert (finding is None) == (not fault)
            if finding is not None:
                assert finding.values["rule"] == rule
                assert fault in finding.message
                assert word in finding.message

    @pytest.mark.parametrize(("type_", "stride"), [("f32", 20), ("s32", 28), ("f16", 24)])
    def test_tiles_with_weak_strides(self, type_: str, stride: int) -> None:
        """Lines at 16 but not at 32 bytes are moved whole, in both directions."""
        item = BITS[type_] // 8
        memory = np.arange(1, 4097).astype({2: np.uint16, 4: np.uint32}[item])
        line = transfer("c", "m16n16k16", type_, "row") + f", {stride};\n"
        names = line[line.index("%w0") - 1 : line.index("}") + 1]
        opcode = f"wmma.store.d.sync.aligned.row.m16n16k16.global.{type_}"
        line += f"{opcode} [%m+4096], {names}, {stride};"
        before = memory.copy()
        assert not launch(text_of(line), memory, wmma_rule="cuda").findings
        for row in range(16):
            first = row * stride
            target = memory[4096 // item + first :][:16]
            assert target.tolist() == before[first : first + 16].tolist()

    def test_command_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "tile.ptx"
        path.write_text(text_of(transfer("a", "m16n16k16", "s8", "row", where="%m+8") + ", 16;"))
        words = ["run", str(path), "--grid", "1", "--block", "32", "--arg", "u8[4096]:zeros"]
        words += ["--format", "json"]
        for rule, code in (([], 0), (["--wmma-rule", "ptx"], 0), (["--wmma-rule", "cuda"], 1)):
            assert main([*words, *rule]) == code
            findings = json.loads(capsys.readouterr().out)["findings"]
            assert [f["values"] for f in findings] == ([{"rule": "cuda"}] if code else [])

    def test_unknown_rule(self) -> None:
        with pytest.raises(ptxsim.UsageError, match="unknown wmma rule 'c'"):
            launch(text_of(""), wmma_rule="c")


# -- .satfinite of floats ----------------------------------------------------------------------


@pytest.mark.parametrize(("c_type", "d_type"), list(product(("f16", "f32"), repeat=2)))
@pytest.mark.parametrize("target", ["70", "75"])
def test_satfinite_of_f16(target: str, c_type: str, d_type: str) -> None:
    """PTX ISA 6.4: infinity becomes the largest finite number of D's type, NaN becomes +0."""
    floats = {"f16": np.float16, "f32": np.float32}
    a, b = np.zeros((16, 16), np.float16), np.eye(16, dtype=np.float16)
    a[0, 0], a[1, 0], a[3, 0] = np.inf, -np.inf, 2
    c = np.zeros((16, 16), floats[c_type])
    c[2, 2], c[4, 4] = np.inf, -1
    kinds = {t: ".f32" if t == "f32" else ".b32" for t in floats}
    groups = [
        "{" + ", ".join(f"%{x}{k}" for k in range(registers(x, "m16n16k16", t))) + "}"
        for x, t in (("d", d_type), ("a", "f16"), ("b", "f16"), ("c", c_type))
    ]
    results = []
    for finite in ("", ".satfinite"):
        d = np.zeros((16, 16), floats[d_type])
        text = header(target).replace("6.5", "6.4") + (
            ".address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc,"
            f" .param .u64 pd)\n{{\n.reg .b64 %m<4>; .reg .b32 %a<8>, %b<8>;"
            f".reg {kinds[c_type]} %c<8>; .reg {kinds[d_type]} %d<8>;\n"
            + "".join(f"ld.param.u64 %m{k}, [p{x}];\n" for k, x in enumerate("abcd"))
            + f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {groups[1]}, [%m0];\n"
            f"wmma.load.b.sync.aligned.row.m16n16k16.global.f16 {groups[2]}, [%m1];\n"
            f"wmma.load.c.sync.aligned.row.m16n16k16.global.{c_type} {groups[3]}, [%m2];\n"
            f"wmma.mma.sync.aligned.row.row.m16n16k16.{d_type}.{c_type}{finite}"
            f" {', '.join(groups)};\n"
            f"wmma.store.d.sync.aligned.row.m16n16k16.global.{d_type} [%m3], {groups[0]};\n"
            "ret;\n}\n"
        )
        kernel = ptxsim.assemble(text).kernel()
        assert not kernel.launch(grid=1, block=32, args=[a, b, c, d]).findings
        results.append(d)
    plain, finite_ones = results
    # row 0: infinity * 1, then infinity * 0 = NaN; row 2: C
    assert np.isposinf(plain[0, 0])
    assert np.isneginf(plain[1, 0])
    assert np.isposinf(plain[2, 2])
    assert np.isnan(plain[:2, 1:]).all()
    largest = {"f16": 65504.0, "f32": 3.4028234663852886e38}[d_type]
    expected = np.where(np.isposinf(plain), largest, np.where(np.isneginf(plain), -largest, plain))
    expected = np.where(np.isnan(plain), 0, expected).astype(floats[d_type])
    assert finite_ones.tobytes() == expected.tobytes()
    assert (finite_ones[3, 0], finite_ones[4, 4]) == (2, -1)


def test_satfinite_of_f16_ends_with_6_4() -> None:
    line = MMA.replace("f32.f32 ", "f32.f32.satfinite ")
    for version, legal in (("6.4", True), ("6.5", False)):
        text = text_of(f"{LOADS}{line}", head=f".version {version}\n.target sm_75\n")
        if legal:
            ptxsim.assemble(text)
        else:
            with pytest.raises(ptxsim.PtxError):
                ptxsim.assemble(text)

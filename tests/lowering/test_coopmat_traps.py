"""What lowered kernels test at run time: each trap fires where it must and nowhere else.

Where a trap fires, the same text without its traps breaks a rule that the simulator checks itself.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import (
    ALL,
    LOAD,
    MANY,
    PRODUCT,
    STORE,
    At,
    agree,
    launch,
    lower,
    product_arguments,
    product_with,
    stored,
    trap_lines,
    traps,
    without_traps,
)

from lowering.coopmat.api import Lowered


def _clean(lowered: Lowered, *, block: int = 32, **changed: Any) -> None:
    arguments = product_arguments(**changed)
    report = launch(lowered, arguments, block=block, smem=1024)
    assert report.clean, report.findings
    assert stored(arguments)


def _trapped(
    lowered: Lowered, check: str, otherwise: str | None, *, block: int = 32, **changed: Any
) -> tuple[int, ...]:
    """The lanes that trap; the launch stores nothing, and ``otherwise`` is the class of finding of
    the same launch without traps."""
    arguments = product_arguments(**changed)
    found, lanes = traps(
        launch(lowered, arguments, block=block, smem=1024), lowered.text()
    )  # fmt: skip
    assert found == check
    assert not stored(arguments)
    ptx = without_traps(lowered.text())
    report = launch(lowered, product_arguments(**changed), block=block, smem=1024, ptx=ptx)
    classes = {f.class_ for f in report.findings}
    assert classes == ({otherwise} if otherwise else set()), report.findings
    return lanes


# --- bases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_misaligned_bases(name: str) -> None:
    """The base at each distance from a multiple of 32 bytes."""
    lowered = lower(product_with())
    check = f"'{name}' is a multiple of 32 bytes"
    for offset in range(1, 32):
        # a misaligned store is one finding, and floats at odd addresses are another
        lanes = _trapped(
            lowered, check, "wmma-precondition", **_misplaced(name, offset)
        )  # fmt: skip
        assert lanes == ALL
    for offset in (0, 32, 64, 4096):
        arguments = product_arguments(**_misplaced(name, offset))
        assert launch(lowered, arguments).clean


def _misplaced(name: str, offset: int) -> dict[str, Any]:
    return {name: At(offset, 256)}


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_misaligned_bases_by_mma(name: str) -> None:
    """Lanes load and store by themselves: the accesses of each lane must be aligned, no more."""
    lowered = lower(product_with(), via="mma")
    (check,) = {p.check for p in lowered.planted if p.check.startswith(f"'{name}' is a multiple")}
    align = int(check.split()[-2])
    assert align == {"a": 4, "b": 4, "c": 8}[name]
    for offset in range(33):
        if offset % align:
            assert _trapped(lowered, check, "misaligned-global", **_misplaced(name, offset)) == ALL
        else:
            assert launch(lowered, product_arguments(**_misplaced(name, offset))).clean


def test_misaligned_bases_of_bytes() -> None:
    """Eight bytes of a fragment are in each lane: the PTX ISA wants no more; the seed wants 32."""
    text = (
        PRODUCT.replace("float16", "int8").replace(" f16;", " s8;").replace("16 f16)", "16 s8)")
        .replace("f16*f16+f32->f32", "s8*s8+s32->s32").replace("float32", "int32")
        .replace("16x16x16 f32", "16x16x16 s32")
    )  # fmt: skip
    ptx, cuda = lower(text), lower(text, rule="cuda")
    for offset in range(33):
        for lowered, align in ((ptx, 8), (cuda, 32)):
            arguments = product_arguments(
                a=At(offset, 256), b=np.ones(MANY, np.int8), c=np.full(MANY, -1, np.int32)
            )
            report = launch(lowered, arguments, smem=1024)
            if offset % align:
                check = {8: "'a' is a multiple of 8 bytes", 32: "'a' is a multiple of 32 bytes"}
                assert traps(report, lowered.text()) == (check[align], ALL)
                assert not stored(arguments)
            else:
                assert report.clean
                assert stored(arguments)


def test_a_base_and_a_constant_index() -> None:
    """One element behind the start is legal if the start lies two bytes before a multiple."""
    lowered = lower(product_with("load x (a 16x16x16 f16) from a[1] stride 16 row;"))
    assert "'a' + 2 is a multiple of 32 bytes" in [p.check for p in lowered.planted]
    for offset in range(0, 64, 2):
        arguments = product_arguments(a=At(offset, 300))
        report = launch(lowered, arguments)
        if offset % 32 == 30:
            assert report.clean
        else:
            assert traps(report, lowered.text()) == ("'a' + 2 is a multiple of 32 bytes", ALL)


# --- indices and strides --------------------------------------------------------------------------


def test_an_index_one_element_off() -> None:
    """N33."""
    lowered = lower(product_with("load x (a 16x16x16 f16) from a[at] stride 16 row;"))
    for at in (1, 15, 17, 33):
        lanes = _trapped(
            lowered, "a[at] is at a multiple of 32 bytes", "wmma-precondition", at=at
        )  # fmt: skip
        assert lanes == ALL
    for at in (0, 16, 32, MANY - 256):
        _clean(lowered, at=at)


def test_strides() -> None:
    """N33; under the rule of the PTX ISA each line starts at a multiple of 32 bytes."""
    lowered = lower(product_with("load x (a 16x16x16 f16) from a[0] stride n row;"))
    multiple, long = "stride n is a multiple of 16 elements", "stride n is at least 16"
    for n in (1, 8, 12, 15, 17, 20, 24, 40):
        _trapped(lowered, multiple, "wmma-precondition", n=n)
    _trapped(lowered, long, "wmma-precondition", n=0)
    _trapped(lowered, multiple, "wmma-precondition", n=2**31 - 1)
    arguments = product_arguments(n=-16)
    assert traps(launch(lowered, arguments), lowered.text()) == (long, ALL)
    for n in (16, 32, 64):
        _clean(lowered, n=n)


def test_strides_of_the_seed() -> None:
    """N33b: 48 bytes pass the seed's rule, break that of the PTX ISA, and pass wmma_rule='cuda'."""
    text = product_with("load x (a 16x16x16 f16) from a[0] stride n row;")
    seed = lower(text, rule="cuda")
    found = launch(seed, product_arguments(n=24)).findings
    assert [f.class_ for f in found] == ["wmma-precondition"]
    arguments = product_arguments(n=24)
    assert launch(seed, arguments, wmma_rule="cuda").clean
    assert stored(arguments)
    for n in (12, 20, 4, 1):  # 24, 40, 8 and 2 bytes
        arguments = product_arguments(n=n)
        check = "stride n is a multiple of 8 elements"
        assert traps(launch(seed, arguments, wmma_rule="cuda"), seed.text()) == (check, ALL)
        assert not stored(arguments)


def test_bytes_in_both_rules() -> None:
    """N33b: base + 8 and stride 24 are legal in PTX for s8; the seed traps on both."""
    text = """kernel k(back: uint8[], a: int8[], c: int32[], n: int32) block(32, 1, 1) {
  fragment x: a 16x16x16 s8;
  fragment z: accumulator 16x16x16 s32;
  load x (a 16x16x16 s8) from a[0] stride n row;
  store z (accumulator 16x16x16 s32) to c[0] stride 16 row;
}"""

    def run(lowered: Lowered, offset: int, n: int, **options: Any) -> Any:
        arguments = {"back": np.ones(MANY, np.uint8), "a": At(offset, 2048),
                     "c": np.full(256, -1, np.int32), "n": n}  # fmt: skip
        return launch(lowered, arguments, **options)

    ptx, seed = lower(text), lower(text, rule="cuda")
    assert run(ptx, 8, 24).clean
    assert traps(run(seed, 8, 16), seed.text())[0] == "'a' is a multiple of 32 bytes"
    assert traps(run(seed, 0, 24), seed.text())[0] == "stride n is a multiple of 16 elements"
    # 20 bytes: PTX wants 8, the seed 16
    assert traps(run(ptx, 0, 20), ptx.text())[0] == "stride n is a multiple of 8 elements"
    assert traps(run(seed, 0, 20), seed.text())[0] == "stride n is a multiple of 16 elements"
    # 8 and 12 are below a line of 16: the seed does not look, and traps on the multiple alone
    assert traps(run(ptx, 0, 8), ptx.text())[0] == "stride n is at least 16"
    assert run(seed, 0, 32).clean
    assert run(seed, 0, 0, wmma_rule="cuda").findings[0].class_ == "wmma-precondition"


def test_the_rule_of_the_seed_is_two_checks_for_each_access() -> None:
    """The element at a multiple of 32 bytes, the stride at a multiple of 16 bytes; also faithful.

    Beyond them a negative index traps."""
    text = product_with(
        "load x (a 16x16x16 f16) from a[at] stride n row;",
        "store z (accumulator 16x16x16 f32) to c[at] stride n row;",
    )
    for options in ({"rule": "cuda"}, {"faithful": True}):
        lowered = lower(text, **options)
        assert [p.check for p in lowered.planted] == [
            "a[at] is at a multiple of 32 bytes",
            "stride n is a multiple of 8 elements",
            "index at is not negative",
            "'b' is a multiple of 32 bytes",
            "c[at] is at a multiple of 32 bytes",
            "stride n is a multiple of 4 elements",
        ]


def test_negative_indices() -> None:
    """Never taken for large ones."""
    plain = lower(product_with("load x (a 16x16x16 f16) from a[at] stride 16 row;"))
    for at in (-16, -1, -(2**31)):
        arguments = product_arguments(at=at)
        found, lanes = traps(launch(plain, arguments, smem=1024), plain.text())
        assert found in ("index at is not negative", "a[at] is at a multiple of 32 bytes")
        assert lanes == ALL
        assert not stored(arguments)
    _trapped(plain, "index at is not negative", "oob-global", at=-16 * 1000)
    wide = lower(product_with("load x (a 16x16x16 f16) from a[far] stride 16 row;"))
    for far in (-16 * 1000, -(2**62)):
        _trapped(wide, "index far is not negative", "oob-global", far=far)
    shared = lower(product_with("load x (a 16x16x16 f16) from tile[at] stride 16 row;"))
    _trapped(shared, "index at is not negative", "oob-shared", at=-512)
    # the product wraps in 32 bits to a negative number, or to a legal one
    scaled = lower(product_with("load x (a 16x16x16 f16) from a[at * 16] stride 16 row;"))
    _trapped(scaled, "index at * 16 is not negative", "oob-global", at=0x0800_0000)
    _clean(scaled, at=0x1000_0000)
    _clean(scaled, at=0x1000_0001)


def test_a_line_that_ends_where_shared_memory_starts() -> None:
    """Only the first 32 bytes lie outside, and their end is address 0."""
    text = """kernel k(c: int32[], at: int32) block(32, 1, 1) {
  shared tile: int32[512];
  fragment z: accumulator 16x16x16 s32;
  store z (accumulator 16x16x16 s32) to tile[at] stride 16 row;
  c[0] = 5;
}"""
    lowered = lower(text)
    arguments: dict[str, Any] = {"c": np.zeros(1, np.int32), "at": -8}
    found = traps(launch(lowered, arguments), lowered.text())
    assert found == ("index at is not negative", ALL)
    assert not arguments["c"].any()
    report = launch(lowered, arguments, ptx=without_traps(lowered.text()))
    assert [f.class_ for f in report.findings] == ["oob-shared"]


def test_bounds() -> None:
    """A tile ends at index + 15 * stride + 16."""
    lowered = lower(product_with("load x (a 16x16x16 f16) from a[at] stride n row;"))
    check = "16 x 16 elements from at, stride n, lie in 'a'"
    for at, n, length in ((0, 16, 256), (16, 16, 272), (0, 32, 496), (32, 48, 32 + 15 * 48 + 16)):
        _clean(lowered, at=at, n=n, a=At(0, length))
        _trapped(lowered, check, None, at=at, n=n, a=At(0, length - 1))
    _trapped(lowered, check, "oob-global", at=2**31 - 16, n=16)
    _trapped(lowered, check, "oob-global", at=0, n=2**31 - 16)
    arguments = product_arguments(at=2**31 - 16, n=2**31 - 16)
    assert traps(launch(lowered, arguments), lowered.text()) == (check, ALL)
    wide = lower(product_with("load x (a 16x16x16 f16) from a[far] stride n row;"))
    arguments = product_arguments(far=2**40)
    found = traps(launch(wide, arguments), wide.text())
    assert found == ("16 x 16 elements from far, stride n, lie in 'a'", ALL)
    _clean(wide, far=MANY - 256)


def test_bounds_of_columns_and_rectangles() -> None:
    """A of 8x16: eight lines by rows, sixteen by columns."""
    for layout, lines, length in (("row", 8, 16), ("col", 16, 8)):
        text = f"""kernel k(back: uint8[], a: float16[], c: float32[], n: int32) block(32, 1, 1) {{
  fragment x: a 8x32x16 f16;
  load x (a 8x32x16 f16) from a[0] stride n {layout};
  c[0] = 5.0;
}}"""
        lowered = lower(text)
        for n in (16, 48):
            end = (lines - 1) * n + length
            for size, clean in ((end, True), (end - 1, False)):
                arguments: dict[str, Any] = {
                    "back": np.zeros(MANY, np.uint8), "a": At(0, size),
                    "c": np.zeros(1, np.float32), "n": n,
                }  # fmt: skip
                report = launch(lowered, arguments)
                assert report.clean is clean
                if not clean:
                    check = f"{lines} x {length} elements from 0, stride n, lie in 'a'"
                    assert traps(report, lowered.text()) == (check, ALL)
                    assert not arguments["c"].any()


def test_bounds_of_shared_arrays() -> None:
    tile = lower(product_with(STORE + "load x (a 16x16x16 f16) from tile[at] stride 16 row;"))
    check = "16 x 16 elements from at, stride 16, lie in 'tile'"
    arguments = product_arguments(at=272)
    assert traps(launch(tile, arguments, smem=0), tile.text()) == (check, ALL)
    # the extent of the dynamic array is known to the launch only
    dynamic = lower(product_with("load x (a 16x16x16 f16) from open[at] stride 16 row;"))
    check = "16 x 16 elements from at, stride 16, lie in 'open'"
    for at, octets, clean in ((0, 512, True), (0, 510, False), (16, 512, False), (16, 544, True)):
        report = launch(dynamic, product_arguments(at=at), smem=octets)
        if clean:  # nothing was stored there, and no more is wrong
            assert {f.class_ for f in report.findings} <= {"uninit-shared"}
        else:
            assert traps(report, dynamic.text()) == (check, ALL)


def test_bounds_are_an_option() -> None:
    text = product_with("load x (a 16x16x16 f16) from a[at] stride n row;")

    def planted(**options: Any) -> int:
        return sum("lie in" in p.check for p in lower(text, **options).planted)

    assert (planted(), planted(bounds=True), planted(bounds=False)) == (3, 3, 0)
    assert (planted(rule="cuda"), planted(rule="cuda", bounds=True)) == (0, 3)


#: Fragments of elements below a byte: elements in the alignment of a lane's registers, of 4 bytes.
SMALL = [("a 8x8x32 s4", "row", 8, 32), ("b 8x8x32 u4", "col", 8, 32),
         ("a 8x8x128 b1", "row", 32, 128), ("b 8x8x128 b1", "col", 32, 128)]  # fmt: skip


@pytest.mark.parametrize("small", SMALL, ids=lambda s: s[0])
def test_elements_below_a_byte(small: tuple[str, str, int, int]) -> None:
    """Addresses are counted in bits: an index between two bytes is not rounded down."""
    fragment, layout, step, line = small
    element = {"s4": "int4", "u4": "uint4", "b1": "bit"}[fragment.split()[2]]
    text = f"""kernel k(a: {element}[], c: int32[], at: int32, n: int32) block(32, 1, 1) {{
  fragment x: {fragment};
  load x ({fragment}) from a[at] stride n {layout};
  c[0] = 5;
}}"""
    lowered = lower(text, target="sm_75")

    def run(at: int, n: int, ptx: str | None = None) -> tuple[Any, bool]:
        arguments = {"a": np.ones(1024, np.uint8), "c": np.zeros(1, np.int32), "at": at, "n": n}
        return launch(lowered, arguments, ptx=ptx), bool(arguments["c"][0])  # type: ignore[index]

    for at in (*range(2 * step + 1), 7 * step - 1):
        report, stored = run(at, line)
        if at % step:
            assert traps(report, lowered.text())[0] == "a[at] is at a multiple of 4 bytes"
        else:
            assert report.clean
        assert stored is (at % step == 0)
    for n in range(line - 1, line + step + 1):
        report, stored = run(0, n)
        if n % step:
            found = traps(report, lowered.text())[0]
            assert found == f"stride n is a multiple of {step} elements"
        else:
            assert report.clean
        assert stored is (n % step == 0)
    bare = without_traps(lowered.text())
    for at, n in ((8, line), (0, line + 8)) if step == 32 else ((2, line), (0, line + 2)):
        assert [f.class_ for f in run(at, n, bare)[0].findings] == ["wmma-precondition"]


def test_lines_shorter_than_the_alignment() -> None:
    """A of 8x32x16 by columns: lines of 16 bytes without gaps, or starts at multiples of 32."""
    text = """kernel k(a: float16[], c: float32[], n: int32) block(32, 1, 1) {
  fragment x: a 8x32x16 f16;
  load x (a 8x32x16 f16) from a[0] stride n col;
  c[0] = 5.0;
}"""
    lowered = lower(text)
    for n in range(8, 65):
        arguments = {"a": np.ones(2048, np.float16), "c": np.zeros(1, np.float32), "n": n}
        report = launch(lowered, arguments)
        bare = launch(lowered, arguments | {"c": np.zeros(1, np.float32)},
                      ptx=without_traps(lowered.text()))  # fmt: skip
        assert report.clean is bare.clean is (n % 16 == 0 or n == 8), n
        if not report.clean:
            check = "stride n is a multiple of 16 elements, or 8"
            assert traps(report, lowered.text()) == (check, ALL)


# --- whole warps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [33, 48, 16, 1, (8, 3, 1), (5, 5, 2)])
def test_partial_warps(block: int | tuple[int, ...]) -> None:
    """The block is not known to the lowering; the test stands at the entry."""
    lowered = lower(product_with().replace("block(32, 1, 1)", ""))
    arguments = product_arguments()
    check, lanes = traps(launch(lowered, arguments, block=block, smem=1024), lowered.text())
    assert check == "the block is a multiple of 32 threads"
    threads = int(np.prod(block))
    assert lanes == ALL[: min(threads, 32)]
    assert not stored(arguments)
    for ptx in (without_traps(lowered.text()), lower(product_with().replace("block(32, 1, 1)", ""),
                                                     rule="cuda").text()):  # fmt: skip
        report = launch(lowered, product_arguments(), block=block, smem=1024, ptx=ptx)
        assert "collective-divergence" in {f.class_ for f in report.findings}


@pytest.mark.parametrize("block", [32, (8, 4, 1), (2, 4, 4)])
def test_whole_warps(block: int | tuple[int, ...]) -> None:
    lowered = lower(product_with().replace("block(32, 1, 1)", ""))
    arguments = product_arguments()
    assert launch(lowered, arguments, block=block, smem=1024).clean
    assert stored(arguments)


# --- divergence -----------------------------------------------------------------------------------

WAYS = "all lanes go the same way"
#: Statements with a condition that is read from memory in each lane; LOAD and STORE are needed.
BRANCHES = [
    ("if flags[thread_idx_x] != 0 { STORE }", WAYS),
    ("if flags[thread_idx_x] == 0 { } else { STORE }", WAYS),
    ("let p: bool = flags[thread_idx_x] != 0; if p { STORE }", WAYS),
    ("while flags[thread_idx_x] != 0 { STORE return; }", WAYS),
    ("let mut i: int32 = flags[thread_idx_x]; while i != 0 { STORE i = 0; }", WAYS),
    ("let mut i: int32 = 2 - flags[thread_idx_x]; while i < 2 { STORE i = i + 1; }", WAYS),
    ("for i = 1 to flags[thread_idx_x] { STORE }", "flags[thread_idx_x] is the same in all lanes"),
    ("let top: int32 = flags[thread_idx_x]; for i = 1 to top { STORE }",
     "top is the same in all lanes"),
    ("for i = 2 - flags[thread_idx_x] to 1 { STORE }",
     "2 - flags[thread_idx_x] is the same in all lanes"),
    ("if flags[thread_idx_x] == 0 { return; } STORE", WAYS),
    ("for i = 0 to 3 { if flags[thread_idx_x] == 0 { return; } } STORE", WAYS),
    ("for i = 0 to 3 { STORE if flags[thread_idx_x] == 0 { return; } }", WAYS),
    ("if flags[thread_idx_x] != 0 { if n == 16 { STORE } }", WAYS),
    ("if flags[thread_idx_x] != 0 && n == 16 { STORE }", WAYS),
    ("if n == 16 && flags[thread_idx_x] != 0 { STORE }", WAYS),
    ("if flags[thread_idx_x] != 0 { LOAD } STORE", WAYS),
]  # fmt: skip


@pytest.mark.parametrize("branch", BRANCHES, ids=lambda b: b[0][:50])
def test_divergent_warps(branch: tuple[str, str]) -> None:
    body, check = branch
    text = product_with(store=body.replace("STORE", STORE).replace("LOAD", LOAD))
    lowered = lower(text)
    for value in (0, 1):
        _launched_together(lowered, value)
    for odd in (0, 7, 31):
        flags = np.zeros(MANY, np.int32)
        flags[odd] = 1
        arguments = product_arguments(flags=flags)
        found, lanes = traps(launch(lowered, arguments, smem=1024), lowered.text())
        assert found == check
        # every lane that disagrees with lane 0 traps where values are compared; all where ways are
        expected = ALL if check == WAYS else tuple(n for n in ALL if flags[n] != flags[0])
        assert lanes == expected
        assert not stored(arguments) or "{ STORE if" in body
        ptx = without_traps(lowered.text())
        report = launch(lowered, product_arguments(flags=flags), smem=1024, ptx=ptx)
        assert "collective-divergence" in {f.class_ for f in report.findings}


def _launched_together(lowered: Lowered, value: int) -> None:
    arguments = product_arguments(flags=np.full(MANY, value, np.int32))
    report = launch(lowered, arguments, smem=1024)
    # a tile of shared memory in which nothing was stored is read all the same
    assert {f.class_ for f in report.findings} <= {"uninit-shared"}, report.findings


def test_the_seed_does_not_look_at_divergence() -> None:
    text = product_with(store="if flags[thread_idx_x] != 0 { " + STORE + " }")
    seed = lower(text, rule="cuda")
    assert WAYS not in [p.check for p in seed.planted]
    flags = np.zeros(MANY, np.int32)
    flags[3] = 1
    found = launch(seed, product_arguments(flags=flags), smem=1024).findings
    assert [f.class_ for f in found] == ["collective-divergence"]


@pytest.mark.parametrize(
    ("access", "check"),
    [
        ("a[flags[thread_idx_x] * 16] stride 16", "flags[thread_idx_x] * 16 is the same"),
        ("a[int64(flags[thread_idx_x] * 16)] stride 16", "int64(flags[thread_idx_x] * 16) is"),
        ("a[int64(flags[thread_idx_x]) << 34i64] stride 16", "int64(flags[thread_idx_x]) << 34"),
        ("a[0] stride 16 + flags[thread_idx_x] * 16", "16 + flags[thread_idx_x] * 16 is the same"),
        ("tile[flags[thread_idx_x] * 16] stride 16", "flags[thread_idx_x] * 16 is the same"),
    ],
)  # fmt: skip
def test_lanes_that_name_different_tiles(access: str, check: str) -> None:
    lowered = lower(product_with(f"load x (a 16x16x16 f16) from {access} row;"))
    _launched_together(lowered, 0)
    # lanes that differ from lane 0 trap; where lane 0 is the odd one, it can meet a trap of its own
    # (of an index that is too far) before the others are scheduled
    for odd in (9, 31) if "<<" in access else (0, 9, 31):
        flags = np.zeros(MANY, np.int32)
        flags[odd] = 1
        arguments = product_arguments(flags=flags)
        found, lanes = traps(launch(lowered, arguments, smem=1024), lowered.text())
        assert found.startswith(check)
        assert lanes == tuple(n for n in ALL if flags[n] != flags[0])
        assert not stored(arguments)
        report = launch(lowered, product_arguments(flags=flags), smem=1024,
                        ptx=without_traps(lowered.text()))  # fmt: skip
        assert "wmma-precondition" in {f.class_ for f in report.findings}


def test_warps_may_name_different_tiles() -> None:
    """By the number of the warp, with a known block; and each warp by what it reads."""
    text = """kernel k(c: int32[], flags: int32[]) block(32, 2, 1) {
  fragment z: accumulator 16x16x16 s32;
  let at: int32 = thread_idx_y * 256;
  load z (accumulator 16x16x16 s32) from c[at] stride 16 row;
  if flags[thread_idx_y] == 1 {
    store z (accumulator 16x16x16 s32) to c[1024 - flags[2 + thread_idx_y] * 256] stride 16 col;
  }
}"""
    arguments = {"c": np.arange(1024, dtype=np.int32), "flags": np.array([1, 1, 2, 1], np.int32)}
    found = agree(text, arguments, block=(32, 2, 1))["c"].reshape(4, 16, 16)
    first = np.arange(512).reshape(2, 16, 16)
    assert found[2].tolist() == first[0].T.tolist()
    assert found[3].tolist() == first[1].T.tolist()


# --- once, hoisted, and not too early -------------------------------------------------------------


def _planted(text: str, **options: Any) -> list[str]:
    return [p.check for p in lower(text, **options).planted]


def test_a_check_is_made_once() -> None:
    again = "load x (a 16x16x16 f16) from a[at] stride n row;"
    once, twice = (_planted(product_with(again * k)) for k in (1, 2))
    assert once == twice
    assert len(once) == len(set(once))
    text = lower(product_with(again * 2)).text()
    assert len(trap_lines(text)) == len(once)
    # the same in a branch, and behind it
    branch = f"if n < 99 {{ {again} }}"
    assert _planted(product_with(again + branch)) == once
    assert _planted(product_with(again + f"for i = 0 to n {{ {again} }}")) == once


def test_a_check_is_made_again_for_new_values() -> None:
    again = "load x (a 16x16x16 f16) from a[v] stride n row;"
    body = f"let mut v: int32 = at; {again} v = v * 2; {again}"
    address = "a[v] is at a multiple of 32 bytes"
    lowered = lower(product_with(body))
    assert [p.check for p in lowered.planted].count(address) == 2
    _clean(lowered, at=16)
    _trapped(lowered, address, "wmma-precondition", at=8)
    # first a legal index, then one that is not
    body = f"let mut v: int32 = at; {again} v = v + 1; {again}"
    _trapped(lower(product_with(body)), address, "wmma-precondition", at=16)
    # another variable of the same name
    body = f"{{ let v: int32 = at; {again} }} {{ let v: int32 = at + 1; {again} }}"
    address = "a[at + 1] is at a multiple of 32 bytes"
    _trapped(lower(product_with(body)), address, "wmma-precondition", at=16)
    # what is read from memory may have changed
    read = "load x (a 16x16x16 f16) from a[flags[0]] stride 16 row;"
    body = f"{read} barrier; if thread_idx_x == 0 {{ flags[0] = 8; }} barrier; {read}"
    _trapped(
        lower(product_with(body)), "a[flags[0]] is at a multiple of 32 bytes", "wmma-precondition"
    )


def test_checks_of_a_loop_stand_before_it() -> None:
    """What the loop does not change is tested before its label, what it changes behind it."""
    loop = "for i = 0 to n { load x (a 16x16x16 f16) from a[i * 8] stride n row; }"
    lowered = lower(product_with(loop + LOAD))
    text = lowered.text().splitlines()
    label = next(k for k, t in enumerate(text, 1) if re.match(r"\$loop_\d+:", t))
    branch = next(k for k, t in enumerate(text, 1) if " bra $endfor" in t)
    where = {}
    for line in trap_lines(lowered.text()):
        comment = next(t for t in reversed(text[:line]) if "// trap unless" in t)
        where[comment.split("unless ")[1]] = line
    for check in ("stride n is a multiple of 16 elements", "stride n is at least 16"):
        assert branch < where[check] < label
    # the base is tested for the load behind the loop anyway
    assert where["'b' is a multiple of 32 bytes"] < branch
    assert where["a[i * 8] is at a multiple of 32 bytes"] > label
    hoisted = {p.check for p in lowered.planted if p.hoisted}
    assert "stride n is a multiple of 16 elements" in hoisted
    assert "a[i * 8] is at a multiple of 32 bytes" not in hoisted


#: Statements around a load that do not come to it if ``n`` is negative.
GUARDS = [
    "if n > 0 { LOAD }", "if n <= 0 { } else { LOAD }", "for i = 1 to n { LOAD }",
    "let mut i: int32 = n; while i > 0 { LOAD i = i - 1; }",
    "if n > 0 { for i = 0 to 3 { LOAD } }", "for i = 0 to 3 { if n > 0 { LOAD } }",
    "for i = 0 to 3 { for j = 1 to n { LOAD } }", "if n <= 0 { STORE return; } LOAD",
    "{ if n <= 0 { STORE return; } } LOAD", "for i = 0 to 0 { if n <= 0 { STORE return; } } LOAD",
    "if n > 0 { LOAD } else { }", "while n <= 0 { STORE return; } LOAD",
    "{ let n: int32 = n; if n > 0 { LOAD } }",
]  # fmt: skip


@pytest.mark.parametrize("guard", GUARDS)
def test_checks_of_what_is_not_executed(guard: str) -> None:
    """A launch that does not come to a load does not trap for its sake; one that does, traps."""
    load = "load v (a 16x16x16 f16) from a[at] stride 16 row;"
    body = "fragment v: a 16x16x16 f16; " + guard.replace("LOAD", load).replace("STORE", STORE)
    lowered = lower(product_with(LOAD.replace("a[0]", "b[0]"), body + STORE))
    bad = {"a": At(2, 256), "at": 0}
    arguments = product_arguments(n=-1, **bad)
    report = launch(lowered, arguments, smem=1024)
    assert report.clean, report.findings
    assert stored(arguments)
    arguments = product_arguments(n=2, **bad)
    check, lanes = traps(launch(lowered, arguments, smem=1024), lowered.text())
    assert check == "a[at] is at a multiple of 32 bytes"
    assert lanes == ALL
    assert not stored(arguments)
    _clean(lowered, n=2, a=At(32, 272), at=16)


def test_checks_behind_a_branch_are_not_those_inside() -> None:
    """What was tested in a branch or a loop that may not run is tested again behind it."""
    inner = "load v (a 16x16x16 f16) from a[w] stride 16 row;"
    for guard in ("if n > 0 { LOAD }", "for i = 1 to n { LOAD }", "if n > 0 { LOAD } else { }",
                  "let mut i: int32 = n; while i > 0 { LOAD i = i - 1; }"):  # fmt: skip
        body = (
            "fragment v: a 16x16x16 f16; let mut w: int32 = at; w = w + 0; "
            + guard.replace("LOAD", inner) + inner
        )  # fmt: skip
        lowered = lower(product_with(store=body + STORE))
        for n in (-1, 3):
            arguments = product_arguments(n=n, at=8)
            check, _ = traps(launch(lowered, arguments, smem=1024), lowered.text())
            assert check == "a[w] is at a multiple of 32 bytes"
            _clean(lowered, n=n, at=16)

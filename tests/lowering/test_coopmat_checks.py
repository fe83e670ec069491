"""Every kind of check that is left out of a kernel, put back: it fires for no residue.

The lowering decides by facts which checks an access needs.  Here it plants them all, as if nothing
were known, and the kernel runs for the residues of its variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import At, launch, lower, traps, without_traps

import lowering.coopmat.api
from lowering.coopmat import preconditions
from lowering.coopmat.api import VIAS, Lowered
from lowering.coopmat.expressions import fact_of
from lowering.coopmat.facts import Fact, Spread
from lowering.coopmat.forms import elt_of
from lowering.coopmat.ir import Const, For, FragmentStore, If, Kernel, Shared, While
from lowering.coopmat.preconditions import Access, Check, Preconditions, examine
from lowering.coopmat.refusals import Refused
from lowering.coopmat.vocabulary import Fragment, Shape
from lowering.coopmat.walk import (
    blocks,
    is_cooperative,
    names,
    reads_memory,
    statements,
    subexpressions,
)

# --- all checks -----------------------------------------------------------------------------------


def _all_checks(access: Access, walk: preconditions._Walk, types: dict[str, str]) -> list[Check]:
    """The checks of an access of which nothing is known, in every form that they have."""
    s = access.statement
    index, stride = (Fact.of(types[what], None, Spread.OPEN) for what in ("index", "stride"))
    bare = Access(s, access.index, access.stride)
    space = "shared" if isinstance(walk.buffers[s.buffer], Shared) else "global"
    align = walk.via.alignment(s.fragment, s.layout, space, isinstance(s, FragmentStore))
    walk.address(bare, index, align, 1)
    # the base alone, as where the index is known to be a multiple
    walk.address(bare, Fact.of("int32", None), 1, 1)
    walk.address(bare, fact_of(Const(0), {}, walk.launch), align, 1)
    walk.stride(bare, stride, align)
    walk.line(bare, stride)
    walk.same(bare, index, stride)
    walk.extent(bare, index, stride)
    return [c for c in bare.checks if not _constant(c)]


def _constant(check: Check) -> bool:
    """Whether a check is of constants alone, which no run can change."""
    parts = [e for e in (check.index, check.stride) if e is not None]
    leaves = [x for e in parts for x in subexpressions(e) if not isinstance(x, Const)]
    varying = any(names(e) or reads_memory(e) for e in parts) or bool(leaves)
    return check.kind in ("same", "line", "stride", "index") and not varying


@contextmanager
def _forced() -> Iterator[None]:
    """Lowering that plants all checks."""

    def everything(kernel: Kernel, launch: Any, via: Any, *rest: Any) -> Preconditions:
        found = examine(kernel, launch, via, *rest)
        walk = preconditions._Walk(kernel, launch, via, *rest)
        for access in found.accesses.values():
            wide = "int64" if "far" in names(access.index) else "int32"
            access.checks = _all_checks(access, walk, {"index": wide, "stride": "int32"})
        assert not walk.out.refusals
        for s in statements(kernel.body):
            inside = [x for b in blocks(s) for x in statements(b)]
            if isinstance(s, If | While | For) and any(map(is_cooperative, inside)):
                found.votes.add(id(s))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering.coopmat.api, "examine", everything)
        yield


# --- the kernels ----------------------------------------------------------------------------------

ELEMENTS = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32",
            "f64": "float64", "s8": "int8", "s32": "int32", "s4": "int4", "b1": "bit"}  # fmt: skip
#: Fragments of every size of an element, loaded, and stored if they are results.
FRAGMENTS = [
    ("a 16x16x16 f16", "row"), ("b 16x16x16 f16", "row"), ("accumulator 16x16x16 f16", "row"),
    ("a 32x8x16 bf16", "col"), ("a 16x16x8 tf32", "row"), ("accumulator 16x16x16 f32", "col"),
    ("accumulator 8x8x4 f64", "row"), ("a 16x16x16 s8", "row"), ("b 8x32x16 s8", "col"),
    ("accumulator 16x16x16 s32", "row"), ("a 8x8x32 s4", "row"), ("b 8x8x128 b1", "col"),
]  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """A fragment in memory, and the numbers that its checks are about."""

    text: str
    layout: str
    via: str

    @property
    def fragment(self) -> Fragment:
        use, shape, component = self.text.split()
        return Fragment(use, Shape(*map(int, shape.split("x"))), component)

    def step(self, space: str, store: bool) -> int:
        """The elements of which an index and a stride must be a multiple."""
        f = self.fragment
        octets = VIAS[self.via].alignment(f, self.layout, space, store)
        return max(1, octets * 8 // elt_of(f)[1])

    @property
    def lines(self) -> tuple[int, int]:
        """How many lines there are, and the elements of each."""
        f = self.fragment
        return (f.rows, f.columns) if self.layout == "row" else (f.columns, f.rows)

    def access(self, verb: str, index: str, stride: str) -> str:
        way = "to" if verb == "store" else "from"
        return f"{verb} v ({self.text}) {way} {index} stride {stride} {self.layout};"

    def kernel(self, body: str, size: int = 1, block: str = "32, 1, 1", align: int = 32) -> str:
        element = ELEMENTS[self.text.split()[2]]
        return f"""kernel k(back: uint8[], a: {element}[] align {align}, flags: int32[], at: int32,
    n: int32, far: int64) block({block}) {{
  shared tile: {element}[{size}];
  fragment v: {self.text};
  {body}
}}"""


def _arguments(**changed: Any) -> dict[str, Any]:
    return {"back": np.zeros(1 << 19, np.uint8), "a": At(0, 1 << 16),
            "flags": np.zeros(64, np.int32), "at": 0, "n": 0, "far": 0} | changed  # fmt: skip


#: Fragments of which others have the sizes.
SLOW = ("accumulator 16x16x16 s32", "b 8x32x16 s8", "b 16x16x16 f16")
TILES = [Tile(text, layout, via) for text, layout in FRAGMENTS for via in VIAS]
VERBS = ("load", "store")


def _verbs(tile: Tile) -> tuple[str, ...]:
    return VERBS if tile.fragment.use == "accumulator" else VERBS[:1]


def _accesses(tile: Tile, verb: str) -> tuple[str, int]:
    """Accesses with all checks proved but for the bounds of ``a``, and the size of ``tile``."""
    store = verb == "store"
    step = tile.step("global", store)
    lines, length = tile.lines
    stride = -(-length // step) * step
    forms = [
        (f"a[(at & 31) * {step}]", f"{stride} + (n & 3) * {step}"),
        (f"a[(at & 31) << {step.bit_length() - 1}]", f"{stride}"),
        (f"a[(n * {3 * step} + {step}) & 4095]", f"(n & 1) * {step} + {stride}"),
        (f"a[at & {4095 & -step}]", f"{stride} << (n & 1)"),
        (f"a[(far & 31i64) * {step}i64]", f"({stride // step} + (n & 7)) * {step}"),
    ]
    body = [tile.access(verb, *form) for form in forms]
    one = tile.access(verb, "a[at]", f"{stride}")
    body.append(f"if at % {step} == 0 && at >= 0 {{ {one} }}")
    one = tile.access(verb, f"a[at / {step} * {step}]", f"{stride}")
    body.append(f"if at >= 0 {{ {one} }}")
    one = tile.access(verb, f"a[{step}]", "n")
    body.append(f"if n >= {length} {{ if n % {step} == 0 {{ {one} }} }}")
    one = tile.access(verb, f"a[i * {step}]", f"{stride} + i * {step}")
    body.append(f"for i = 0 to at & 3 {{ {one} }}")
    one = tile.access(verb, "a[m]", f"m + {stride}")
    body.append(f"let mut m: int32 = {step}; while m < {4 * step} {{ {one} m = m + {step}; }}")
    inner = tile.step("shared", store)
    wide = -(-length // inner) * inner
    size = 15 * inner + (lines - 1) * 2 * wide + length
    body.append(tile.access(verb, f"tile[(at & 15) * {inner}]", f"{wide} * ((n & 1) + 1)"))
    return "\n  ".join(body), size


def _kinds(lowered: Lowered) -> set[str]:
    """The checks that are planted, except for what no fact can prove: the bounds of ``a``."""
    return {p.check for p in lowered.planted if not p.check.endswith("lie in 'a'")}


def _swept(lowered: Lowered, residues: range, **changed: Callable[[int], Any]) -> set[str]:
    """The checks that fire over the residues of the variables modulo 32."""
    fired = set()
    for k in residues:
        # each residue of each variable in the first 32 launches, all pairs in 1024
        at, n = k % 32, (13 * k + k // 32) % 32
        others = {name: value(at) for name, value in changed.items()}
        arguments = _arguments(at=at, n=n, far=at ^ 5, **others)
        report = launch(lowered, arguments, block=lowered.source.block or 32)
        if any(f.class_ == "trap" for f in report.findings):
            fired.add(traps(report, lowered.text())[0])
        else:
            harmless = {"uninit-shared", "same-value-write"}
            assert {f.class_ for f in report.findings} <= harmless, report.findings
    return fired


SWEEPS = pytest.mark.parametrize(
    "count", [pytest.param(32, id="some"), pytest.param(1024, marks=pytest.mark.slow, id="all")]
)


SWEPT = [
    pytest.param(t, marks=[pytest.mark.slow] * (t.text in SLOW), id=f"{t.text}-{t.via}")
    for t in TILES
]


@pytest.mark.parametrize("tile", SWEPT)
@SWEEPS
def test_proved_checks_never_fire(tile: Tile, count: int) -> None:
    """Base, address, stride, line, index, bounds of shared memory, and same in all lanes."""
    for verb in _verbs(tile):
        body, size = _accesses(tile, verb)
        text = tile.kernel(body, size)
        assert _kinds(lower(text, via=tile.via)) == set()
        with _forced():
            lowered = lower(text, via=tile.via)
        planted = _kinds(lowered)
        parts = ["'a' is a multiple", "is not negative", "is at least", "lie in 'tile'",
                 "is the same in all lanes", "all lanes go the same way"]  # fmt: skip
        step = tile.step("global", verb == "store")
        if step > 1:  # any index is a multiple of one element
            parts += ["] is at a multiple", f"is a multiple of {step} elements"]
        for part in parts:
            assert any(part in check for check in planted), (part, planted)
        # by default every fourth residue, of each tile others
        places = range(TILES.index(tile) % 4, 32, 4) if count == 32 else range(count)
        assert _swept(lowered, places) == set()


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.text}-{t.via}")
def test_warps_that_are_known_never_differ(tile: Tile) -> None:
    """Two warps with tiles of their own; the checks are made for each of its lanes."""
    for verb in _verbs(tile):
        step = tile.step("global", verb == "store")
        lines, length = tile.lines
        stride = -(-length // step) * step
        far = lines * stride * 2
        body = "\n  ".join([
            tile.access(verb, f"a[thread_idx_y * {far} + (at & 31) * {step}]", f"{stride}"),
            "let warp: int32 = (thread_idx_x + thread_idx_y * block_dim_x) / 32; if warp == 1 { "
            + tile.access(verb, f"a[warp * {far}]", f"{stride} * warp") + " }",
            "if thread_idx_y < n { "
            + tile.access(verb, f"a[(thread_idx_x / 32 + thread_idx_y) * {far}]", f"{stride}")
            + " }",
        ])  # fmt: skip
        text = tile.kernel(body, 1, "32, 2, 1")
        assert _kinds(lower(text, via=tile.via)) == set()
        with _forced():
            lowered = lower(text, via=tile.via)
        assert sum("is the same in all lanes" in c for c in _kinds(lowered)) >= 3
        fired = set()
        for k in (0, 1, 2, 7, 31):
            report = launch(lowered, _arguments(at=k, n=k), block=(32, 2, 1))
            fired |= {f.class_ for f in report.findings}
        assert fired <= {"race-global", "same-value-write"}, fired


# --- the converse ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needed:
    """A kind of check with a proved access and a small change with which it is needed and fires;
    what the kernel and the launches have for that."""

    kind: str
    check: str
    good: str
    bad: str
    size: int = 1
    align: int = 32
    residues: range = range(6)
    changed: dict[str, Callable[[int], Any]] = field(default_factory=dict)


def _needed(tile: Tile, verb: str) -> Iterator[Needed]:
    store = verb == "store"
    step = tile.step("global", store)
    lines, length = tile.lines
    stride = -(-length // step) * step
    octets = VIAS[tile.via].alignment(tile.fragment, tile.layout, "global", store)

    def access(index: str, wide: str) -> str:
        return tile.access(verb, index, wide)

    at = f"a[(at & 31) * {step}]"
    good = access(at, f"{stride}")
    if octets > 1:
        pointer = {"a": lambda k: At(k, 1 << 16)}
        yield Needed("base", f"'a' is a multiple of {octets} bytes", good, good, align=1,
                     changed=pointer)  # fmt: skip
    if step > 1:
        half = f"a[(at & 31) * {step // 2}]"
        check = f"{half} is at a multiple of {octets} bytes"
        yield Needed("address", check, good, access(half, f"{stride}"))
        thin = f"{stride} + (n & 3) * {step // 2}"
        check = f"stride {thin} is a multiple of {step} elements"
        if VIAS[tile.via].packs and length % step:
            check += f", or {length}"
        wide = f"{stride} + (n & 3) * {step}"
        yield Needed("stride", check, access(at, wide), access(at, thin))
    none = f"(n & 3) * {stride}"
    check = f"stride {none} is at least {length}"
    yield Needed("line", check, access(at, f"{none} + {stride}"), access(at, none))
    less = f"((at & 31) - 1) * {step}"
    check = f"index {less} is not negative"
    yield Needed("index", check, good, access(f"a[{less}]", f"{stride}"))
    inner = tile.step("shared", store)
    line = -(-length // inner) * inner
    size = 15 * inner + (lines - 1) * line + length
    most = f"(at & 31) * {inner}"
    check = f"{lines} x {length} elements from {most}, stride {line}, lie in 'tile'"
    yield Needed("bounds", check, access(f"tile[(at & 15) * {inner}]", f"{line}"),
                 access(f"tile[{most}]", f"{line}"), size, residues=range(14, 18))  # fmt: skip
    read = f"(flags[thread_idx_x] & 31) * {step}"
    flags = {"flags": lambda k: np.eye(32, 64, dtype=np.int32)[k]}
    yield Needed("same", f"{read} is the same in all lanes", good,
                 access(f"a[{read}]", f"{stride}"), residues=range(2), changed=flags)  # fmt: skip


KINDS = ("base", "address", "stride", "line", "index", "bounds", "same")


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.text}-{t.via}")
def test_needed_checks_fire(tile: Tile) -> None:
    """The neighbour of each proof: exactly this check is planted, and some residue fires it."""
    met = set()
    for verb in _verbs(tile):
        for case in _needed(tile, verb):
            assert _kinds(lower(tile.kernel(case.good, case.size), via=tile.via)) == set()
            text = tile.kernel(case.bad, case.size, align=case.align)
            lowered = lower(text, via=tile.via)
            assert _kinds(lowered) == {case.check}
            assert case.check in _swept(lowered, case.residues, **case.changed)
            met.add(case.kind)
    small = tile.step("global", False) == 1
    assert met == set(KINDS) - ({"address", "stride"} if small else set())


def test_all_kinds_are_met() -> None:
    """Where elements are smaller than the accesses, there is every kind of check."""
    tile = Tile("a 16x16x16 f16", "row", "wmma")
    assert tuple(case.kind for case in _needed(tile, "load")) == KINDS


def test_a_forced_check_fires() -> None:
    """The control of the sweep: what is planted by force is tested as what is needed is."""
    tile = Tile("a 16x16x16 f16", "row", "wmma")
    bad = tile.kernel("if at % 16 == 0 { } " + tile.access("load", "a[at & 31]", "16"))
    with _forced():
        lowered = lower(bad)
    assert "a[at & 31] is at a multiple of 32 bytes" in _swept(lowered, range(32))
    with _forced(), pytest.raises(Refused):
        lower(bad.replace("at & 31", "1"))


# --- misaligned tiles -----------------------------------------------------------------------------

#: What the simulator finds itself where a tile is not aligned: one instruction, or lanes' own.
BROKEN = {"wmma": {"wmma-precondition"}, "mma": {"misaligned-global", "misaligned-shared"}}


def _stride(tile: Tile, space: str, store: bool) -> int:
    step = tile.step(space, store)
    return -(-tile.lines[1] // step) * step


def _finding(lowered: Lowered, ptx: str | None = None, **changed: Any) -> set[str]:
    report = launch(lowered, _arguments(**changed), ptx=ptx)
    return {f.class_ for f in report.findings} - {"uninit-shared"}


#: The same for more fragments.
MISPLACED = TILES + [
    Tile(text, layout, via)
    for text, layout in (
        ("a 8x8x4 f64", "row"), ("b 8x8x4 f64", "row"), ("b 8x8x32 s4", "col"),
        ("a 8x8x128 b1", "row"), ("b 16x16x8 tf32", "col"), ("b 8x32x16 bf16", "row"),
        ("accumulator 8x32x16 f16", "col"), ("accumulator 8x8x4 f64", "col"),
    )
    for via in VIAS
]  # fmt: skip


@pytest.mark.parametrize("tile", MISPLACED, ids=lambda t: f"{t.text}-{t.layout}-{t.via}")
def test_misaligned_bases(tile: Tile) -> None:
    """The base at each distance from a multiple of 32 bytes: a trap, or no access is misaligned."""
    for verb in _verbs(tile):
        octets = VIAS[tile.via].alignment(tile.fragment, tile.layout, "global", verb == "store")
        access = tile.access(verb, "a[0]", f"{_stride(tile, 'global', verb == 'store')}")
        lowered = lower(tile.kernel(access, align=1), via=tile.via)
        bare = without_traps(lowered.text())
        for offset in range(33):
            base = At(offset, 1 << 16)
            report = launch(lowered, _arguments(a=base))
            if offset % octets == 0:
                assert report.clean
                continue
            check = f"'a' is a multiple of {octets} bytes"
            assert traps(report, lowered.text()) == (check, tuple(range(32)))
            if offset in (1, 2, octets // 2, octets + 1):
                assert _finding(lowered, bare, a=base) & BROKEN[tile.via]


@pytest.mark.parametrize("tile", MISPLACED, ids=lambda t: f"{t.text}-{t.layout}-{t.via}")
def test_misaligned_tiles_in_shared_memory(tile: Tile) -> None:
    """The array is aligned; an index moves the tile by its elements, below a byte too."""
    bits = elt_of(tile.fragment)[1]
    for verb in _verbs(tile):
        step = tile.step("shared", verb == "store")
        stride = _stride(tile, "shared", verb == "store")
        access = tile.access(verb, "tile[at]", f"{stride}")
        lowered = lower(tile.kernel(access, stride * 64 + 64 * step), via=tile.via)
        planted = [p.check for p in lowered.planted]
        check = f"tile[at] is at a multiple of {step * bits // 8} bytes"
        assert (check in planted) is (step > 1)
        bare = without_traps(lowered.text())
        for at in sorted({*range(33), step, 2 * step, 2 * step + step // 2, 2 * step - 1}):
            report = launch(lowered, _arguments(at=at))
            if at % step == 0:
                assert {f.class_ for f in report.findings} <= {"uninit-shared"}
                continue
            assert traps(report, lowered.text()) == (check, tuple(range(32)))
            # below a byte, what is read without the check is another tile, and nobody sees it
            if at * bits % 8 == 0 and at in (1, 8, step // 2, step + 1):
                assert _finding(lowered, bare, at=at) & BROKEN[tile.via]

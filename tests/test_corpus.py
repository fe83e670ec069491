"""PTX that compilers made (nvcc 13.0, Triton 3.9, numba-cuda 0.30, LLVM), run and compared.

The expected values follow from the sources of the kernels, computed here in Python; the source
line is quoted where it is short.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Source
from ptxsim.resolve import resolve
from ptxsim.syntax import parse, to_text

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*.ptx"))
f32, i32 = np.float32, np.int32


def _rng() -> np.random.Generator:
    return np.random.default_rng(20261130)


@dataclass
class Case:
    """A launch: ``make`` gives the arguments and (array, expected, tolerance) triples to check.

    ``races`` are the lines of accesses that the source leaves in no order, second and first.
    """

    file: str
    make: Callable[[], tuple[list[Any], Callable[[], list[tuple[Any, Any, float]]]]]
    grid: Any = 1
    block: Any = 32
    entry: str | None = None
    smem: int = 0
    races: frozenset[tuple[int, int]] = frozenset()


CASES: dict[str, Case] = {}


def case(file: str, name: str = "", **launch: Any) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        CASES[name or file] = Case(file + ".ptx", make, **launch)
        return make

    return add


@case("asm_labels__sm120a_O0")
def _() -> Any:
    out = np.zeros(32, i32)
    # r = c*c + r over c = 1..n and then 1..n+1, n = 5
    expected = sum(c * c for c in range(1, 6)) + sum(c * c for c in range(1, 7))
    return [out, i32(5)], lambda: [(out, np.full(32, expected), 0)]


@case("constmem__sm80")
def _() -> Any:
    out = np.zeros(32, f32)
    # sum of w[0..4] = 1 + 2.5 - 3; times 7, plus 2.5, c[5 % 3] = 3, gtab[5 & 3] = -2, gz[5] = 0,
    # mg = 5
    expected = 0.5 * 7 + 2.5 + 3 - 2 + 0 + 5
    return [out, i32(5)], lambda: [(out, np.full(32, expected, f32), 0)]


@case("index64__sm90a", grid=2, block=16)
def _() -> Any:
    ld = np.array([7, 100, 3, 12345678901234567], np.int64)
    out = np.zeros(4096)
    want = np.zeros(4096)
    for i in range(64):
        r, c = divmod(i, 7)
        want[r * 100 + c * 3] = (
            float(((i * int(ld[3])) >> 64) + ((r * c) >> 64)) + float(c << 3) + i
        )
    return [out, ld, np.uint64(64), i32(0)], lambda: [(out, want, 0)]


@case("switch_jump__sm100a", block=1)
def _() -> Any:
    out, key = np.full(12, 100, i32), np.full(12, 3, i32)
    key[1] = 7
    # case 3: v -= k[1], falls into case 4: v << 3
    return [out, key], lambda: [(out[:1], [(100 - 7) << 3], 0)]


@case("recursion_fnptr__sm80", block=1)
def _() -> Any:
    out, s = np.zeros(4, i32), np.zeros(4, i32)
    out[:3] = [2, 3, 4]
    # tab[0](o[0], 3) = 2 + 3; ack(2, 2) = 7; b.a[4] = 4; (int)d = 3
    return [out, s], lambda: [(out[:1], [5 + 7 + 4 + 3], 0)]


def _atomics(n: int) -> Any:
    """``n`` threads; what their atomics return is in order, and looked at, if it is one thread."""
    one = n == 1

    def make() -> Any:
        i, u, f, d = np.zeros(10, i32), np.zeros(10, np.uint32), np.zeros(2, f32), np.zeros(2)
        u[3], u[9] = 0xFFF, 1
        wide, h, b = np.zeros(6, np.uint64), np.zeros(2, np.uint32), np.zeros(2, np.uint32)
        wide[2] = 1
        old, dec = 0, 0
        for _ in range(n):
            old = 0 if old >= 7 else old + 1
            dec = 9 if dec == 0 or dec > 9 else dec - 1
        # n in both halves of f16x2 and of bf16x2, the upper half of f32
        halves = int(np.float16(n).view(np.uint16)) * 0x10001
        upper = (int(f32(n).view(np.uint32)) >> 16) * 0x10001

        def check() -> list[tuple[Any, Any, float]]:
            out: list[tuple[Any, Any, float]] = [
                (i, [n, -2 * n, 0, n, n, 0, 0, 0, 0, (n + 3) // 4], 0),
                (u[[0, 1, 2, 3, 4]], [n - 1, old, dec, 0xFF, 1], 0),
                (u[[5, 7, 9]], [3 * (n & 1), 5, 2], 0),
                (f[1:], [1.5 * n], 0), (d[1:], [2.5 * n], 0),
                (wide[[0, 2, 5]], [3 * n, 2, 7], 0),
                (h[1:], [halves], 0), (b[1:], [upper], 0),
            ]  # fmt: skip
            returned: list[tuple[Any, Any, float]] = [
                (u[[6, 8]], [0, 1], 0),
                (f[:1], [0], 0),
                (d[:1], [0], 0),
            ]
            returned += [(wide[1:2], [1], 0), (h[:1], [0], 0), (b[:1], [0], 0)]
            return out + returned if one else out

        return [i, u, f, d, wide, h, b], check

    return make


for _sm, _lines, _more in (
    # the bf16 addition in older code is a loop of atom.cas that begins with a plain load
    ("sm80", (78, 82, 85, 88, 94, 119, 141), {(137, 126)}),
    ("sm120a_O0", (1030, 1049, 1065, 1081, 1114, 1298, 1325), set()),
):
    case(f"atomics_all__{_sm}", f"atomics_all__{_sm}_one_thread", block=1)(_atomics(1))
    # each thread stores what its atomics return to one place: "u[6] = atomicExch(u + 7, 5u)"
    case(
        f"atomics_all__{_sm}",
        block=64,
        races=frozenset({(line, line) for line in _lines} | _more),
    )(_atomics(64))


@case("redux__sm90a")
def _() -> Any:
    r = _rng()
    u = r.integers(0, 2**32, 32, dtype=np.uint64).astype(np.uint32)
    s = r.integers(-99, 99, 32).astype(i32)
    v = [int(x) for x in u]
    both, any_, odd = v[0], 0, 0
    for x in v:
        both, any_, odd = both & x, any_ | x, odd ^ x
    total = (sum(v) + both + any_ + odd + min(v)) % 2**32
    signed = int(s.max()) + int(s.min())
    return [u, s], lambda: [(u, np.full(32, total, np.uint32), 0), (s, np.full(32, signed), 0)]


def _pipeline() -> Any:
    g = _rng().random((3, 64, 4), dtype=f32)
    out = np.zeros(64, f32)
    return [g, out, i32(3)], lambda: [(out, g[0, ::-1, 0] + g[1, ::-1, 0], 0)]


case("cp_async__sm80", block=64)(_pipeline)
case("cp_async__sm120a_O0", block=64)(_pipeline)


def _tree(dtype: Any) -> Any:
    def make() -> Any:
        x = np.arange(64).astype(dtype)
        total = int(x.sum()) + 4
        return [x, i32(64)], lambda: [(x[:1], [total], 0)]

    return make


for _letter, _dtype in (("f", f32), ("d", np.float64), ("s", np.int16)):
    case(
        "dyn_shared__sm120a",
        f"dyn_shared_{_letter}",
        entry=f"_Z2dsI{_letter}EvPT_i",
        smem=64 * np.dtype(_dtype).itemsize + 512,
    )(_tree(_dtype))


def _template(dtype: Any, unroll: int) -> Any:
    def make() -> Any:
        x = (np.arange(128) % 11).astype(dtype)
        y = np.ones(128, dtype)
        want = np.ones(128, np.int64)
        for i in range(128):
            want[i] += 3 * sum(
                int(x[i + 32 * k]) * (k + 1) for k in range(unroll) if i + 32 * k < 128
            )
        return [x, y, i32(128), np.dtype(dtype).type(3)], lambda: [(y, want.astype(dtype), 0)]

    return make


for _name, _dtype, _unroll in (
    ("fLi4", f32, 4), ("dLi3", np.float64, 3), ("iLi2", i32, 2), ("xLi2", np.int64, 2),
    ("hLi5", np.uint8, 5),
):  # fmt: skip
    case(
        "saxpy_templates__sm75",
        f"saxpy_templates_{_name}",
        block=128,
        entry=f"_Z2sxI{_name}EEvPKT_PS0_iS0_",
    )(_template(_dtype, _unroll))


@case("lineinfo_mat__sm80_line", grid=(2, 2), block=(16, 16))
def _() -> Any:
    r = _rng()
    a, b = (r.integers(0, 8, (32, 32)).astype(f32) for _ in range(2))
    c = np.zeros((32, 32), f32)
    return [a, b, c, i32(32)], lambda: [(c, a @ b, 0)]


@case("coop_groups__sm90a")
def _() -> Any:
    o = np.arange(32, dtype=f32)
    # sums of 16: 120 and 376; both exceed 1, so lane 0's sum and 32 lanes are added, then 32
    want = np.concatenate([np.full(16, 120.0 + 120 + 64), np.full(16, 376.0 + 120 + 64)])
    want[0] = 32  # g.size()
    return [o, i32(1)], lambda: [(o, want, 0)]


# all threads store the exponent of frexp to o[0], where thread 0 has stored its first result
@case("float_math__sm80", races=frozenset({(2561, 2561), (2561, 411)}))
def _() -> Any:
    x, o = np.linspace(0.1, 0.9, 32, dtype=f32), np.zeros(256, f32)
    d = x.astype(np.float64)

    def check() -> list[tuple[Any, Any, float]]:
        rows = o.reshape(8, 32).astype(np.float64)
        erf = np.array([math.erf(v) + math.erfc(v) + math.lgamma(v) + math.gamma(v) for v in d])
        return [
            (rows[0, 1:], (np.sin(d) + np.cos(d) * np.tan(d))[1:], 1e-6),  # frexp overwrites o[0]
            (rows[1, 1:], (np.exp(d) + np.exp2(d) - np.expm1(d))[1:], 2e-6),
            (rows[2], np.log(d) + np.log2(d) + np.log1p(d), 2e-6),
            (rows[3], d**2.3 + np.sqrt(d) + d**-0.5 + np.cbrt(d), 2e-6),
            (rows[4], np.arcsin(d) + np.arccos(d) + np.arctan(d) + np.sinh(d) + np.tanh(d), 2e-6),
            (rows[5], erf, 5e-5),
        ]

    return [x, o], check


@case("double_math__sm80")
def _() -> Any:
    a, o = np.linspace(0.1, 0.9, 32), np.zeros((32, 8))

    def check() -> list[tuple[Any, Any, float]]:
        return [
            (o[:, 0], np.sin(a) + np.cos(a * 0.5), 1e-15),
            (o[:, 1], np.exp(a) - np.log(np.abs(a) + 1.0), 1e-15),
            (o[:, 2], a**1.25 / np.sqrt(a * a + 1), 1e-15),
            (o[:, 4], [math.erf(v) + math.gamma(v) for v in a], 1e-14),
            (o[:, 6], np.arctan2(a, 2.0) + np.hypot(a, 3.0), 1e-15),
            (o[:, 7], np.cbrt(a) + (a + 2) ** -0.5 + a / 7 + np.sqrt(a), 1e-15),
        ]

    return [a, o, i32(32)], check


@case("fast_math__sm75_fast")
def _() -> Any:
    x, o = np.linspace(0.1, 0.9, 32, dtype=f32), np.zeros(32, f32)
    d = x.astype(np.float64)
    want = (
        np.sin(d) + np.cos(d) + np.exp(d) + np.log(d) + d**2 + d / 3 + d / 7 + np.sqrt(d)
        + d**-0.5 + np.tan(d) + d + np.tanh(d)
    )  # fmt: skip
    return [x, o], lambda: [(o.astype(np.float64), want, 1e-5)]


@case("triton_vadd__sm80", block=128)
def _() -> Any:
    r = _rng()
    x, y = r.random(1024, dtype=f32), r.random(1024, dtype=f32)
    o = np.zeros(1024, f32)
    want = np.where(np.arange(1024) < 300, x + y, f32(0))
    return [x, y, o, i32(300), None, None], lambda: [(o, want, 0)]


@case("triton_scan_sort__sm80", block=128, smem=8192)
def _() -> Any:
    v = _rng().integers(-1000, 1000, 128).astype(i32)
    o = np.zeros(256, i32)
    return [v, o, None, None], lambda: [(o[:128], np.cumsum(v), 0), (o[128:], np.sort(v), 0)]


@case("triton_fp8cast__sm90", block=128)
def _() -> Any:
    v = np.zeros(512, f32)
    v[:6] = [1, -2, 448, 0.5, 1.0625, 1.1875]
    o = np.zeros(512, np.uint8)
    # e4m3: 1 = 38, -2 = c0, 448 = 7e, 0.5 = 30; 1.0625 and 1.1875 are ties and go to even
    want = np.zeros(512, np.uint8)
    want[:6] = [0x38, 0xC0, 0x7E, 0x30, 0x38, 0x3A]
    return [v, o, i32(200), None, None], lambda: [(o, want, 0)]


def _numba(array: Any) -> list[Any]:
    size = array.itemsize
    n = len(array)
    return [
        np.uint64(0),
        np.uint64(0),
        np.int64(n),
        np.int64(size),
        array,
        np.int64(n),
        np.int64(size),
    ]


@case("numba_saxpy__sm80", block=128)
def _() -> Any:
    x, y = np.arange(100, dtype=f32), np.full(100, 0.5, f32)
    return [f32(2), *_numba(x), *_numba(y)], lambda: [(y, 2 * x + f32(0.5), 0)]


@case("numba_mathk__sm80", block=64)
def _() -> Any:
    x, o = np.linspace(0.1, 2, 64), np.zeros(64)
    want = np.sin(x) + np.exp(x) / np.sqrt(x + 1) + x**1.5
    return [*_numba(x), *_numba(o)], lambda: [(o, want, 2e-15)]


def _arithmetic(threads: int) -> Any:
    def make() -> Any:
        o = np.zeros(40, i32)
        wide = int.from_bytes(bytes(range(16)), "little")
        third = int(np.float32(4.0 / 3.0).view(np.uint32))
        want = np.zeros(40, np.uint32)
        for t in range(threads):
            a = t * 5
            both = ((a << 32) | (a // 7)) << (t % 32)
            ones = bin((both >> 32) & 0xFFFFFFFF).count("1")
            want[t] = ((ones ^ 12) + third + ((wide >> 37) & 0xFFFFFFFF)) & 0xFFFFFFFF
        want[:2] = [wide & 0xFFFFFFFF, (wide >> 32) & 0xFFFFFFFF]
        skipped = 0 if threads == 1 else 2
        return [o, i32(5), f32(3), np.float64(4), bytes(range(16))], lambda: [
            (o.view(np.uint32)[skipped:], want[skipped:], 0)
        ]

    return make


case("ll_arith__sm90_O2", "ll_arith__sm90_O2_one_thread", block=1)(_arithmetic(1))
# all threads store to o[0] and o[1], to which threads 0 and 1 have added their results
case("ll_arith__sm90_O2", races=frozenset({(53, 51), (54, 51)}))(_arithmetic(32))


@case("scoped_atomics__sm90a", block=1)
def _() -> Any:
    p, q, f = np.array([3], i32), np.array([2], np.uint64), np.array([1], f32)
    # 3 + 1, stored + 1; compare with 3 fails; max with 5; plus 1
    return [p, q, f], lambda: [(p, [5], 0), (q, [5], 0), (f, [2.0], 0)]


@case("half_arith__sm80", block=64)
def _() -> Any:
    a, b = np.full((64, 2), 0.5, np.float16), np.full(64, 0.25, np.float16)
    o, p = np.zeros((64, 2), np.float16), np.zeros(64, np.float16)
    # fma(.5, .25, sat(.75)) = .875; max with .125; fma.relu(.875, .5, .25) = .6875
    return [a, b, o, p, i32(64)], lambda: [(o, np.full((64, 2), 0.6875), 0)]


@case("bf16_mix__sm80", block=64)
def _() -> Any:
    a = np.full((64, 2), 0x3FC0, np.uint16)  # 1.5
    f = np.full(128, 0.5, f32)
    o, q = np.zeros((64, 2), np.uint16), np.zeros(128, np.uint16)
    # 1.5 * 1.5 + .5 = 2.75 = 0x4030; .5 + 1.5 = 2, max with 1.5 = 0x4000; min with 1 = 0x3f80
    want = np.concatenate([np.full(64, 0x4000), np.full(64, 0x3F80)])
    return [a, f, o, q, i32(64)], lambda: [(o, np.full((64, 2), 0x4030), 0), (q, want, 0)]


def _fp8() -> Any:
    v = np.zeros((32, 2), f32)
    v[:, 0], v[:, 1] = 1.5, -0.375
    o, q, h = np.zeros(64, np.uint16), np.zeros(32, np.uint8), np.zeros((32, 2), np.float16)
    # e4m3: 1.5 = 3c, -.375 = ac; e5m2: 1.5 = 3e, -.375 = b6.  h reads the e4m3 bytes as e5m2.
    want = np.concatenate([np.full(32, 0xAC3C), np.full(32, 0xB63E)])
    low, high = np.array([0x3C00, 0xAC00], np.uint16).view(np.float16)
    halves = np.tile(np.array([low, high]), (32, 1))
    return [v, o, q, h], lambda: [(o, want, 0), (q, np.full(32, 0x3C), 0), (h, halves, 0)]


case("fp8_cvt__sm75")(_fp8)
case("fp8_cvt__sm90a")(_fp8)


@case("assert_dbg__sm75_G", block=1)
def _() -> Any:
    p = np.arange(16, dtype=i32)
    want = sum(5 * ((7 * i) & 15) for i in range(5))
    return [p, i32(5)], lambda: [(p[:1], [want], 0)]


def _matmul() -> Any:
    """tl.dot of 64x64x32 tiles; small integers make every order of summation exact."""
    r = _rng()
    a = r.integers(-3, 4, (128, 96)).astype(np.float16)
    b = r.integers(-3, 4, (96, 128)).astype(np.float16)
    c = np.full((128, 128), 99, np.float16)
    sizes = [i32(128), i32(128), i32(96), i32(96), i32(128), i32(128)]
    want = a.astype(f32) @ b.astype(f32)
    return [a, b, c, *sizes, None, None], lambda: [(c.astype(f32), want, 0)]


case("triton_matmul__sm80", grid=(2, 2), block=128, smem=98304)(_matmul)
case("triton_matmul__sm75", grid=(2, 2), block=128, smem=49152)(_matmul)


@pytest.mark.parametrize("name", CASES)
def test_runs_and_matches(name: str) -> None:
    c = CASES[name]
    args, expected = c.make()
    kernel = ptxsim.assemble(CORPUS / c.file).kernel(c.entry)
    report = kernel.launch(grid=c.grid, block=c.block, args=args, smem=c.smem)
    errors = [f for f in report.findings if f.severity.value == "error"]
    assert {f.class_ for f in errors} == ({"race-global"} if c.races else set()), errors
    assert {(f.line, f.other_line) for f in errors} == c.races
    for got, want, tolerance in expected():
        if tolerance:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, np.asarray(want))


def test_at_least_25_features_run() -> None:
    assert len({c.file.split("__")[0] for c in CASES.values()}) >= 25


def test_printf_and_malloc() -> None:
    kernel = ptxsim.assemble(CORPUS / "printf_malloc__sm75.ptx").kernel()
    text = np.frombuffer(b"hey\0", np.uint8)
    report = kernel.launch(grid=1, block=2, args=[i32(6), np.float64(1.5), text])
    assert report.verdict == "clean"
    assert report.printf == "".join(f"t {t} v 25 d 1.500000 s hey x %\n" for t in range(2))


def test_a_failed_assertion_is_a_trap() -> None:
    kernel = ptxsim.assemble(CORPUS / "assert_dbg__sm75_G.ptx").kernel()
    report = kernel.launch(grid=1, block=1, args=[np.arange(16, dtype=i32), i32(-5)])
    assert report.verdict == "trap"
    assert 'n>0&&"n positive"' in report.findings[0].message


def test_a_lane_outside_its_own_mask_is_found() -> None:
    """warp_ops executes __syncwarp(0xff) in all 32 lanes, which is undefined."""
    kernel = ptxsim.assemble(CORPUS / "warp_ops__sm80.ptx").kernel()
    report = kernel.launch(grid=1, block=32, args=[np.zeros(128, i32), np.zeros(32, f32)])
    assert (report.verdict, report.findings[0].lanes) == ("mask-mismatch", tuple(range(8, 32)))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_parses_resolves_and_prints_back(path: Path) -> None:
    text = path.read_text()
    tree = parse(text)
    assert parse(to_text(tree)) == tree
    codes = {d.code for d in resolve(tree, Source(path.name, text)).diagnostics}
    assert codes <= {"PTX400"}


@pytest.mark.parametrize("name", ["surfaces__sm75", "textures__sm75"])
def test_what_is_not_modelled_says_so_with_its_line(name: str) -> None:
    module = ptxsim.assemble(CORPUS / f"{name}.ptx")
    assert {d.code for d in module.diagnostics} == {"PTX400"}
    assert all(d.span.line > 1 for d in module.diagnostics)

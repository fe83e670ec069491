"""What lowered kernels compute: the oracle's values, and the bits of the exact tensor-core model.

The model knows neither the IR nor PTX.  What a kernel does with the products is written down once
more beside it, in lists of patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import launch, lower, without_traps
from numpy.typing import NDArray
from test_coopmat_emit import CONFIGS
from test_coopmat_golden import CASES, KEPT, LOWERED

from lowering.coopmat.api import Lowered
from lowering.coopmat.exact import Bounded
from lowering.coopmat.forms import floor
from lowering.coopmat.oracle import evaluate
from lowering.coopmat.text import parse
from lowering.coopmat.vocabulary import COMPONENTS, Config
from tests.numerics.tensor_core_model import dot

Array = NDArray[Any]
Matrix = list[list[int]]
#: The patterns of a buffer, element by element; or a scalar.
Memory = dict[str, Any]

ARCHITECTURES = {
    "sm_70": "Volta", "sm_72": "Volta", "sm_75": "Turing", "sm_80": "Ampere", "sm_90": "Hopper",
    "sm_100": "Blackwell", "sm_120": "RTX Blackwell",
}  # fmt: skip

# --- patterns -------------------------------------------------------------------------------------

_PACKED = {"uint4": 2, "int4": 2, "bit": 8}


def patterns(element: str, array: Array) -> list[int]:
    """The bits of each element of a buffer."""
    if element == "bit":
        array = np.unpackbits(array, bitorder="little")
    elif element in _PACKED:
        array = np.stack([array & 15, array >> 4], axis=-1).reshape(-1)
    return [int(x) for x in array.view(f"u{array.itemsize}")]


def take(memory: list[int], at: int, stride: int, size: tuple[int, int], layout: str) -> Matrix:
    """A tile of so many rows and columns."""
    rows, columns = size
    if layout == "row":
        return [[memory[at + r * stride + c] for c in range(columns)] for r in range(rows)]
    return [[memory[at + c * stride + r] for c in range(columns)] for r in range(rows)]


def put(memory: list[int], at: int, stride: int, matrix: Matrix, layout: str) -> None:
    """Write a tile."""
    for r, row in enumerate(matrix):
        for c, value in enumerate(row):
            memory[at + (r * stride + c if layout == "row" else c * stride + r)] = value


def zeros(rows: int, columns: int) -> Matrix:
    return [[0] * columns for _ in range(rows)]


def times(a: Matrix, b: Matrix, c: Matrix, config: str, architecture: str, **how: Any) -> Matrix:
    """``a * b + c``, each element one dot product of the model."""
    columns = list(zip(*b, strict=True))
    spelling = f"wmma.mma.{config}"
    return [
        [dot(row, column, added, spelling, architecture, **how)
         for column, added in zip(columns, start, strict=True)]
        for row, start in zip(a, c, strict=True)
    ]  # fmt: skip


# --- what the kernels do --------------------------------------------------------------------------

Model = Callable[[Memory, str], None]


def f16_register(m: Memory, on: str) -> None:
    x = take(m["a"], 0, m["lda"], (16, 16), "row")
    y = take(m["b"], 0, m["ldb"], (16, 16), "row")
    z = take(m["c"], 0, m["ldc"], (16, 16), "col")
    z = times(x, y, z, "m16n16k16.f32.f16.f16.f32", on)
    put(m["d"], 0, m["ldc"], z, "row")


def f16_shared(m: Memory, on: str) -> None:
    x, y = take(m["a"], 0, 16, (32, 16), "row"), take(m["b"], 0, 16, (16, 8), "col")
    z = zeros(32, 8)
    for _ in range(2):
        z = times(x, y, z, "m32n8k16.f16.f16.f16.f16", on)
    put(m["d"], 0, 8, z, "row")


def f16_mixed(m: Memory, on: str) -> None:
    x, y = take(m["a"], 0, 16, (8, 16), "col"), take(m["b"], 0, 32, (16, 32), "row")
    z = take(m["c"], 0, 32, (8, 32), "row")
    h = times(x, y, z, "m8n32k16.f16.f16.f16.f32", on)
    put(m["narrow"], 0, 8, h, "col")
    z = times(x, y, h, "m8n32k16.f32.f16.f16.f16", on)
    put(m["wide"], 0, 8, z, "col")


def f16_saturating(m: Memory, on: str) -> None:
    """Infinities become the largest numbers, NaN +0 (CUDA C++ guide, mma_sync with satf)."""
    ld = m["ld"]
    x, y = take(m["a"], 0, ld, (16, 16), "col"), take(m["b"], 0, ld, (16, 16), "row")
    z = take(m["c"], 0, ld, (16, 16), "row")
    z = times(x, y, z, "m16n16k16.f16.f16.f16.f16", on)
    finite = {0x7C00: 0x7BFF, 0xFC00: 0xFBFF, 0x7FFF: 0}
    put(m["d"], 0, ld, [[finite.get(v, v) for v in row] for row in z], "col")


def bf16_loop(m: Memory, on: str) -> None:
    for warp in range(2):
        z = zeros(32, 8)
        for k in range(m["steps"]):
            x = take(m["a"], warp * 32 * m["lda"] + k * 16, m["lda"], (32, 16), "row")
            y = take(m["b"], k * 128, 8, (16, 8), "row")
            z = times(x, y, z, "m32n8k16.f32.bf16.bf16.f32", on)
        put(m["d"], warp * 256, 8, z, "row")


def tf32_epilogue(m: Memory, on: str) -> None:
    out = [0] * 512
    for warp in range(2):
        x = take(m["a"], warp * 128, 8, (16, 8), "row")
        y = take(m["b"], warp * 128, 8, (8, 16), "col")
        z = times(x, y, zeros(16, 16), "m16n16k8.f32.tf32.tf32.f32", on)
        put(out, warp * 256, 16, z, "row")
    sums = np.array(out[256:] + out[:256], np.uint32).view(np.float32)
    bias = np.array(m["bias"], np.uint32).view(np.float32)[np.arange(512) % 32 % 16]
    with np.errstate(all="ignore"):
        scaled = sums * np.float32(0.5) + bias
    bits = np.where(np.isnan(scaled), 0x7FFFFFFF, scaled.view(np.uint32))
    m["d"][:] = bits.tolist()


def f64_roundings(m: Memory, on: str) -> None:
    x, y = take(m["a"], 0, 4, (8, 4), "row"), take(m["b"], 0, 8, (4, 8), "row")
    z = take(m["c"], 0, 8, (8, 8), "col")
    for n, rounding in enumerate(("rn", "rz", "rm", "rp")):
        r = times(x, y, z, "m8n8k4.f64.f64.f64.f64", on, rounding=rounding)
        put(m["d"], n * 64, 8, r, "col" if rounding == "rp" else "row")
    put(m["d"], 256, 8, times(x, y, r, "m8n8k4.f64.f64.f64.f64", on), "row")


def s8_saturating(m: Memory, on: str) -> None:
    x, y = take(m["a"], 0, 24, (16, 16), "col"), take(m["b"], 8, 24, (16, 16), "col")
    z = take(m["c"], 0, 16, (16, 16), "row")
    put(m["d"], 0, 16, times(x, y, z, "m16n16k16.s32.s8.s8.s32", on, satfinite=True), "col")


def u8_branch(m: Memory, on: str) -> None:
    for block, step in enumerate(m["flags"]):
        if 0 < step < 1 << 31:
            x = take(m["a"], block * 8 * step, step, (8, 16), "row")
            y = take(m["b"], 0, 32, (16, 32), "row")
            z = times(x, y, zeros(8, 32), "m8n32k16.s32.u8.u8.s32", on)
            put(m["d"], block * 256, 32, z, "row")


def s4_address(m: Memory, on: str) -> None:
    x = take(m["a"], m["at"], 32, (8, 32), "row")
    y = take(m["b"], m["at"] + 8, m["ldb"], (32, 8), "col")
    z = take(m["c"], 0, 8, (8, 8), "col")
    put(m["d"], 0, 8, times(x, y, z, "m8n8k32.s32.s4.s4.s32", on, satfinite=True), "row")


def u4_while(m: Memory, on: str) -> None:
    z, n = zeros(8, 8), m["n"]
    for k in range(0, n, 32):
        x, y = take(m["a"], k, n, (8, 32), "row"), take(m["b"], k, n, (32, 8), "col")
        z = times(x, y, z, "m8n8k32.s32.u4.u4.s32", on)
    put(m["d"], 0, 8, z, "col")


def b1_xor(m: Memory, on: str) -> None:
    x = take(m["a"], 0, m["lda"], (8, 128), "row")
    y = take(m["b"], 32, 160, (128, 8), "col")
    z = take(m["c"], 0, 8, (8, 8), "row")
    put(m["d"], 0, 8, times(x, y, z, "m8n8k128.s32.b1.b1.s32", on), "row")


def b1_and(m: Memory, on: str) -> None:
    for warp in range(2):
        z = zeros(8, 8)
        for k in range(2):
            x = take(m["a"], warp * 8 * 256 + k * 128, 256, (8, 128), "row")
            y = take(m["b"], k * 128, 256, (128, 8), "col")
            z = times(x, y, z, "m8n8k128.s32.b1.b1.s32", on, bit_operation="and")
        put(m["d"], warp * 64, 8, z, "row")


def s32_dynamic(m: Memory, on: str) -> None:
    x, y = take(m["a"], 0, 16, (32, 16), "row"), take(m["b"], 0, 16, (16, 8), "col")
    sums = times(x, y, zeros(32, 8), "m32n8k16.s32.s8.s8.s32", on)
    turned = [
        [-(v - (1 << 32)) * n % (1 << 32) if v >> 31 else v for n, v in enumerate(row)]
        for row in sums
    ]
    put(m["d"], 0, 8, times(x, y, turned, "m32n8k16.s32.s8.s8.s32", on), "row")


def u8_seed(m: Memory, on: str) -> None:
    ld = m["ld"]
    y, z = take(m["b"], 0, ld, (16, 16), "col"), take(m["c"], 0, ld, (16, 16), "row")
    for block in range(2):
        x = take(m["a"], block * 256, ld, (16, 16), "row")
        put(m["d"], block * 256, ld, times(x, y, z, "m16n16k16.s32.u8.u8.s32", on), "col")


def s8_u8(m: Memory, on: str) -> None:
    x, y = take(m["a"], 0, 16, (16, 16), "row"), take(m["b"], 0, 16, (16, 16), "row")
    put(m["d"], 0, 16, times(x, y, zeros(16, 16), "m16n16k16.s32.s8.u8.s32", on), "row")


# --- their data -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """How a kernel is launched: elements of its buffers, values of its scalars, its shape."""

    model: Model
    sizes: Mapping[str, int]
    scalars: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, Sequence[int]] = field(default_factory=dict)
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    #: elements of the dynamic array, each of 4 bytes
    dynamic: int = 0


SEEDED = Use(u8_seed, {"a": 512, "b": 256, "c": 256, "d": 512}, {"ld": 16}, grid=(2, 1, 1))
USES = {
    "f16_register": Use(
        f16_register, {"a": 16 * 32, "b": 16 * 48, "c": 16 * 24, "d": 16 * 24},
        {"lda": 32, "ldb": 48, "ldc": 24},
    ),
    "f16_shared": Use(f16_shared, {"a": 512, "b": 128, "d": 256}),
    "f16_mixed": Use(f16_mixed, {"a": 256, "b": 512, "c": 256, "narrow": 256, "wide": 256}),
    "f16_saturating": Use(f16_saturating, dict.fromkeys("abcd", 16 * 32), {"ld": 32}),
    "bf16_loop": Use(
        bf16_loop, {"a": 64 * 48, "b": 384, "d": 512}, {"lda": 48, "steps": 3}, block=(64, 1, 1)
    ),
    "tf32_epilogue": Use(
        tf32_epilogue, {"a": 256, "b": 256, "bias": 16, "d": 512}, block=(32, 2, 1)
    ),
    "f64_roundings": Use(f64_roundings, {"a": 32, "b": 32, "c": 64, "d": 320}),
    "s8_saturating": Use(s8_saturating, {"a": 384, "b": 392, "c": 256, "d": 256}),
    "u8_branch": Use(
        u8_branch, {"a": 2 * 8 * 20 + 160, "b": 512, "d": 768}, given={"flags": [16, -3, 20]},
        grid=(3, 1, 1),
    ),
    "s4_address": Use(
        s4_address, {"a": 272, "b": 24 + 8 * 40, "c": 64, "d": 64}, {"at": 16, "ldb": 40}
    ),
    "u4_while": Use(u4_while, {"a": 512, "b": 512, "d": 64}, {"n": 64}),
    "b1_xor": Use(b1_xor, {"a": 1280, "b": 32 + 1280, "c": 64, "d": 64}, {"lda": 160}),
    "b1_and": Use(b1_and, {"a": 16 * 256, "b": 8 * 256, "d": 128}, block=(16, 4, 1)),
    "s32_dynamic": Use(s32_dynamic, {"a": 512, "b": 128, "d": 256}, {"ld": 16}, dynamic=512),
    "u8_cuda": SEEDED,
    "u8_faithful": SEEDED,
    "s8_u8": Use(s8_u8, {"a": 256, "b": 256, "d": 256}),
}  # fmt: skip

#: Exponents that the numbers of an element are scattered over; f16 sums stay below its limit.
_EXPONENTS = {"float16": (-8, 2), "bfloat16": (-20, 20), "float32": (-20, 20), "float64": (-60, 60)}
#: Infinities, a quiet NaN, the least and the greatest subnormal of both signs, -0.
_SPECIAL = {
    "float16": [0x7C00, 0xFC00, 0x7E01, 0x0001, 0x83FF, 0x8000],
    "bfloat16": [0x7F80, 0xFF80, 0x7FC1, 0x0001, 0x807F, 0x8000],
    "float32": [0x7F800000, 0xFF800000, 0x7FC00001, 0x2000, 0x807FFFFF, 1 << 31],
    "float64": [0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 1, 1 << 63 | (1 << 52) - 1, 1 << 63],
}


def filled(element: str, size: int, rng: np.random.Generator, special: bool) -> Array:
    """Random elements: all integers, or floats of many sizes with some special ones."""
    if element in ("int32", "int64"):
        word = np.int32 if element == "int32" else np.int64
        # near both ends, where sums wrap or saturate
        ends = np.where(rng.integers(0, 2, size) == 0, np.iinfo(word).min, np.iinfo(word).max)
        near = rng.integers(0, 5000, size)
        return np.where(ends < 0, ends + near, ends - near).astype(word)
    if element not in _EXPONENTS:
        data = rng.integers(0, 256, size // _PACKED.get(element, 1), np.uint8)
        return data.view(np.int8) if element == "int8" else data
    low, high = _EXPONENTS[element]
    values = rng.standard_normal(size) * 2.0 ** rng.integers(low, high, size)
    if element == "bfloat16":
        bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        bits = values.astype(element).view(f"u{np.dtype(element).itemsize}")
    if special:
        for value in _SPECIAL[element]:
            bits[rng.integers(0, size)] = value
    return bits if element == "bfloat16" else bits.view(element)


#: The buffers that kernels store to.
RESULTS = ("d", "wide", "narrow")


def arguments(name: str, special: bool = False) -> dict[str, Any]:
    """The arguments of a kernel; results start with other values than zero."""
    use, kernel = USES[name], parse(CASES[name].text)
    rng = np.random.default_rng(list(USES).index(name))
    out: dict[str, Any] = {}
    for p in kernel.params:
        if not p.buffer:
            out[p.name] = use.scalars[p.name]
        elif p.name in use.given:
            out[p.name] = np.array(use.given[p.name], p.type)
        else:
            out[p.name] = filled(p.type, use.sizes[p.name], rng, special and p.name not in RESULTS)
    return out


def memory(lowered: Lowered, values: Mapping[str, Any]) -> Memory:
    """Arguments as patterns."""
    return {
        p.name: patterns(p.type, values[p.name]) if p.buffer else values[p.name]
        for p in lowered.source.params
    }


@cache
def modelled(name: str, architecture: str, special: bool = False) -> Memory:
    """The buffers behind a kernel by the model; read only."""
    case = CASES[name]
    lowered = case.lowered(case.vias[0], case.targets(case.vias[0])[0])
    out = memory(lowered, arguments(name, special))
    USES[name].model(out, architecture)
    return out


@cache
def evaluated(name: str, special: bool = False) -> dict[str, Any]:
    """The buffers behind a kernel by the oracle; read only."""
    use, kernel = USES[name], parse(CASES[name].text)
    kernel = replace(kernel, block=kernel.block or use.block)
    given = arguments(name, special)
    return evaluate(kernel, given, grid=use.grid, dynamic=use.dynamic).buffers


def simulated(
    name: str, lowered: Lowered, special: bool = False, ptx: str | None = None, **options: Any
) -> dict[str, Any]:
    """The buffers behind a kernel by the simulator."""
    use, found = USES[name], arguments(name, special)
    report = launch(
        lowered, found, grid=use.grid, block=use.block, smem=use.dynamic * 4, ptx=ptx, **options
    )
    assert report.clean, report.findings
    return found


def canonical(lowered: Lowered, found: Memory) -> Memory:
    """Patterns with one NaN of f64, whose payload no source fixes."""
    doubles = [p.name for p in lowered.source.params if p.type == "float64"]
    top = 0x7FF << 52
    return found | {n: [top + 1 if v & ~(1 << 63) > top else v for v in found[n]] for n in doubles}


def same_bits(name: str, lowered: Lowered, found: Mapping[str, Any], special: bool) -> bool:
    """Whether all buffers hold what the model computes for the target."""
    expected = modelled(name, ARCHITECTURES[lowered.kernel.target], special)
    got = memory(lowered, found)
    return canonical(lowered, got) == canonical(lowered, expected)


def held(name: str, found: Mapping[str, Any], special: bool) -> bool:
    """Whether all buffers hold what the oracle allows."""
    for buffer, value in evaluated(name, special).items():
        if isinstance(value, Bounded):
            if not value.holds(found[buffer]).all():
                return False
        elif not np.array_equal(value, found[buffer]):
            return False
    return True


@cache
def built(name: str, via: str, target: str) -> Lowered:
    """A kernel for a target."""
    return CASES[name].lowered(via, target)


@cache
def ran(name: str, via: str, target: str, special: bool, schedule: str = "default") -> Memory:
    """The buffers behind a kernel by the simulator; read only."""
    return simulated(name, built(name, via, target), special, schedule=schedule)


def check(
    name: str, via: str, target: str, special: bool = False, schedule: str = "default"
) -> None:
    lowered, found = built(name, via, target), ran(name, via, target, special, schedule)
    assert same_bits(name, lowered, found, special)
    if name != "f16_saturating":  # which the oracle does not know
        assert held(name, found, special)


# --- each kernel ----------------------------------------------------------------------------------

NEAR = [(n, via, CASES[n].targets(via)[0]) for n, via in KEPT]


FLOATS = [n for n, c in CASES.items() if re.search(r": b?float\d", c.text)]


def spread(cases: list[tuple[str, str, str]]) -> list[Any]:
    """Integers are the same on every target, and floats from sm_90 on: these are slow."""
    near = ("sm_75", "sm_80", "sm_90")
    return [
        x if x[2] in near[: 2 + (x[0] in FLOATS)] else pytest.param(*x, marks=pytest.mark.slow)
        for x in cases
    ]


@pytest.mark.parametrize(("name", "via", "target"), spread(LOWERED))
def test_on_each_target(name: str, via: str, target: str) -> None:
    check(name, via, target)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((n, "sm_70") for n in ("f16_register", "f16_shared", "f16_mixed", "f16_saturating")),
        *((n, "sm_72") for n in ("f16_shared", "s8_saturating", "u8_branch", "s32_dynamic")),
        *((n, "sm_72") for n in ("u8_cuda", "u8_faithful")),
    ],
)
def test_on_the_first_targets(name: str, target: str) -> None:
    check(name, "wmma", target)


@pytest.mark.parametrize(("name", "via", "target"), spread([x for x in LOWERED if x[0] in FLOATS]))
def test_special_numbers_on_each_target(name: str, via: str, target: str) -> None:
    check(name, via, target, special=True)


@pytest.mark.parametrize("schedule", ["reverse", "random:1"])
@pytest.mark.parametrize(("name", "via", "target"), NEAR)
def test_on_each_schedule(name: str, via: str, target: str, schedule: str) -> None:
    check(name, via, target, schedule=schedule)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize(("name", "via", "target"), NEAR)
def test_on_random_schedules(name: str, via: str, target: str, seed: int) -> None:
    check(name, via, target, special=True, schedule=f"random:{seed}")


PAIRS = [(n, "mma", t) for n, c in CASES.items() if len(c.vias) == 2 for t in c.targets("mma")]


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special"])
@pytest.mark.parametrize(("name", "via", "target"), spread(PAIRS))
def test_wmma_and_mma_give_the_same_bits(name: str, via: str, target: str, special: bool) -> None:
    special = special and name in FLOATS  # integers have no special numbers
    found = [
        memory(built(name, way, target), ran(name, way, target, special)) for way in ("wmma", via)
    ]
    assert found[0] == found[1]


def test_special_numbers_reach_the_results() -> None:
    """The special runs are not void: infinities and NaN stand in results, finite numbers too."""
    for name in FLOATS:
        kinds = set()
        for p in parse(CASES[name].text).params:
            if p.name in RESULTS:
                bits = modelled(name, "Ampere", True)[p.name]
                word = {"float16": "f2", "float32": "f4", "float64": "f8"}[p.type]
                values = np.array(bits, word.replace("f", "u")).view(word)
                kinds |= {"nan"} if np.isnan(values).any() else set()
                kinds |= {"inf"} if np.isinf(values).any() else set()
                kinds |= {"finite"} if np.isfinite(values).any() else set()
        assert kinds == ({"finite"} if name == "f16_saturating" else {"nan", "inf", "finite"}), name


# --- controls: kernels with one error compute something else --------------------------------------

MUTATED = [
    # C is never loaded, but zero
    ("f16_register", r"  load z .*\n", ""),
    # the other layout
    ("f16_register", r"from a\[0\] stride lda row", "from a[0] stride lda col"),
    ("f16_register", r"from c\[0\] stride ldc col", "from c[0] stride ldc row"),
    ("f16_register", r"to d\[0\] stride ldc row", "to d[0] stride ldc col"),
    ("f16_shared", r"to out\[0\] stride 32 col", "to out[0] stride 8 row"),
    ("f16_shared", r"b\[0\] stride 16 col", "b[0] stride 8 row"),
    ("bf16_loop", r"steps - 1", "steps - 2"),
    ("bf16_loop", r"b\[k \* 128\]", "b[0]"),
    ("tf32_epilogue", r"\(i \+ 256\) % 512", "i"),
    ("tf32_epilogue", r"right\[warp \* 128\] stride 8 col", "right[warp * 128] stride 16 row"),
    ("f64_roundings", r" rz\)", " rp)"),
    ("f64_roundings", r" rm\)", " rn)"),
    ("s8_saturating", r" saturating\)", ")"),
    ("s8_saturating", r"from a\[0\] stride 24 col", "from a[0] stride 24 row"),
    ("u8_branch", r"\] > 0", "] < 0 - 9"),
    ("s4_address", r"b\[at \+ 8\]", "b[at]"),
    ("s4_address", r" saturating\)", ")"),
    ("u4_while", r"k \+ 32", "k + 64"),
    ("b1_xor", r" xor\)", " and)"),
    ("b1_and", r" and\)", " xor)"),
    ("b1_and", r"b\[k \* 128\]", "b[0]"),
    ("s32_dynamic", r"\* n;", "* 1;"),
    ("s8_u8", r"\b([a-z]) 16x16x16 u8", r"\1 16x16x16 s8"),
]


def changed(name: str, old: str, new: str) -> str:
    text = re.sub(old, new, CASES[name].text)
    assert text != CASES[name].text
    if name == "s8_u8":
        text = text.replace("s8*u8", "s8*s8")
    return text


@pytest.mark.parametrize(("name", "old", "new"), MUTATED)
def test_a_wrong_kernel_differs(name: str, old: str, new: str) -> None:
    """By mma, whose loads are defined at each address of whole elements."""
    lowered = lower(changed(name, old, new), via="mma", **CASES[name].options)
    found = simulated(name, lowered)
    assert not same_bits(name, lowered, found, False)
    # the bound of the oracle holds roundings in each direction
    assert held(name, found, False) == (name == "f64_roundings")


def test_a_diagonal_read_differs() -> None:
    """B with stride 1, so that (r, c) comes from r + c; only without the tests for the stride."""
    name = "f16_register"
    lowered = CASES[name].lowered("mma", "sm_80")
    found, wrong = arguments(name), arguments(name) | {"ldb": 1}
    refused = launch(lowered, {n: np.copy(v) for n, v in wrong.items()})
    assert [f.class_ for f in refused.findings] == ["trap"]
    assert launch(lowered, wrong, ptx=without_traps(lowered.text())).clean
    assert not same_bits(name, lowered, wrong | {"ldb": found["ldb"]}, False)
    model = memory(lowered, found | {"ldb": 1})
    f16_register(model, "Ampere")
    assert memory(lowered, wrong) == model


@pytest.mark.parametrize(
    ("name", "via", "old", "new"),
    [
        ("f16_register", "wmma", r"(wmma\.mma.* \{)(%r\d+), (%r\d+)", r"\1\3, \2"),
        ("f16_register", "wmma", r"row\.row(\.m16n16k16\.f32)", r"row.col\1"),
        ("f16_register", "mma", r"(mma\.sync.*, \{)(%r\d+), (%r\d+)(\}, \{%f)", r"\1\3, \2\4"),
        ("s8_saturating", "wmma", r"\.satfinite", ""),
        ("b1_xor", "wmma", r"wmma\.mma\.xor", "wmma.mma.and"),
        ("f64_roundings", "wmma", r"\.m8n8k4\.rz", ".m8n8k4"),
        ("f64_roundings", "mma", r"(mma\..*)\.rz", r"\1"),
        ("u8_branch", "wmma", r"setp\.gt\.s32 (%p\d+), (%r\d+), 0", r"setp.gt.s32 \1, \2, 16"),
        ("tf32_epilogue", "mma", r"0f3F000000", "0f3F000001"),
    ],
)
def test_wrong_ptx_is_seen(name: str, via: str, old: str, new: str) -> None:
    lowered = CASES[name].lowered(via, "sm_80")
    ptx = re.sub(old, new, lowered.text())
    assert ptx != lowered.text()
    use, found = USES[name], arguments(name)
    report = launch(lowered, found, grid=use.grid, block=use.block, smem=use.dynamic * 4, ptx=ptx)
    assert not (report.clean and same_bits(name, lowered, found, False))


def test_models_differ() -> None:
    """The bits depend on the architecture, so that agreement on each says something."""
    for name in ("f16_register", "bf16_loop", "tf32_epilogue"):
        one = modelled(name, "Ampere")["d"]
        assert one != modelled(name, "Hopper")["d"], name
    assert modelled("f16_register", "Volta")["d"] != modelled("f16_register", "Turing")["d"]


# --- each config ----------------------------------------------------------------------------------


def single(config: Config) -> str:
    """One product: all lines of 128 elements at least, so that every alignment is met."""
    a, b, c, d = config.fragments()
    elements = [
        {"u32": "int32", "s32": "int32", "s8": "uint8", "u8": "uint8", "s4": "uint4",
         "u4": "uint4", "b1": "bit", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
        .get(f.component, "float32")
        for f in (a, b, c, d)
    ]  # fmt: skip
    params = ", ".join(f"{n}: {t}[]" for n, t in zip("abcd", elements, strict=True))
    return f"""kernel single({params}) block(32, 1, 1) {{
  fragment x: {a};
  fragment y: {b};
  fragment z: {c};
  fragment r: {d};
  load x ({a}) from a[0] stride 128 row;
  load y ({b}) from b[0] stride 128 col;
  load z ({c}) from c[0] stride 128 col;
  r = muladd x, y, z ({config});
  store r ({d}) to d[0] stride 128 row;
}}"""


#: More than any tile takes: 31 lines of 128 elements and a line.
MANY = 32 * 128


def product(config: Config, target: str, via: str) -> list[int]:
    """The patterns of the result, which are those of the model and within the oracle's bound."""
    version = floor(config).since if floor(config).until < (9, 0) else None
    lowered = lower(single(config), via=via, target=target, version=version)
    rng = np.random.default_rng(CONFIGS.index(config) if config in CONFIGS else 99)
    given = {p.name: filled(p.type, MANY, rng, True) for p in lowered.source.params}
    found = {n: v.copy() for n, v in given.items()}
    report = launch(lowered, found)
    assert report.clean, report.findings
    got = canonical(lowered, memory(lowered, found))
    expected = expected_product(config, canonical(lowered, memory(lowered, given)), target)
    assert got["d"] == canonical(lowered, got | {"d": expected})["d"]
    if not (config.saturating and config.a == "f16"):  # which the oracle does not know
        for name, value in evaluate(lowered.source, given).buffers.items():
            if isinstance(value, Bounded):
                assert value.holds(found[name]).all()
            else:
                assert np.array_equal(value, found[name])
    result: list[int] = memory(lowered, found)["d"]
    return result


def expected_product(config: Config, m: Memory, target: str) -> list[int]:
    """The result by the model."""
    s = config.shape
    c, d = ("s32" if t == "u32" else t for t in (config.c, config.result))
    x, y = take(m["a"], 0, 128, (s.m, s.k), "row"), take(m["b"], 0, 128, (s.k, s.n), "col")
    z = take(m["c"], 0, 128, (s.m, s.n), "col")
    how: dict[str, Any] = {}
    if config.a == "b1":
        how["bit_operation"] = config.modifier
    elif config.a == "f64":
        how["rounding"] = config.modifier or "rn"
    elif COMPONENTS[config.a][1]:
        how["satfinite"] = config.saturating
    spelling = f"m{s.m}n{s.n}k{s.k}.{d}.{config.a}.{config.b}.{c}"
    r = times(x, y, z, spelling, ARCHITECTURES[target], **how)
    if config.saturating and config.a == "f16":  # as in f16_saturating
        top = {"f16": 0x7C00, "f32": 0x7F800000}[d]
        sign = 1 << (15 if d == "f16" else 31)
        nan = 0x7FFF if d == "f16" else 0x7FFFFFFF
        finite = {top: top - 1, sign | top: (sign | top) - 1, nan: 0}
        r = [[finite.get(v, v) for v in row] for row in r]
    out = list(m["d"])
    put(out, 0, 128, r, "row")
    return out


MIXED = [
    replace(c, b={"s": "u", "u": "s"}[c.a[0]] + c.a[1:])
    for c in CONFIGS
    if c.a in ("s8", "u8", "s4", "u4")
]


def has_mma(config: Config) -> bool:
    """mma.sync has one type of accumulator, and no .satfinite of f16."""
    return config.c == config.result and not (config.saturating and config.a == "f16")


def each_config(target: str) -> list[Any]:
    """The configs that a target has."""
    number = int(target[3:])
    return [
        pytest.param(c, target, id=f"{str(c).replace(' ', '-')}-{target}")
        for c in CONFIGS
        if floor(c).sm <= number and (floor(c).until > (9, 0) or number <= 75)
    ]


def check_config(config: Config, target: str) -> None:
    by_wmma = product(config, target, "wmma")
    if has_mma(config) and int(target[3:]) >= 80:
        assert product(config, target, "mma") == by_wmma


@pytest.mark.parametrize(("config", "target"), [*each_config("sm_80"), *(
    x for x in each_config("sm_75") if x.values[0].saturating and x.values[0].a == "f16"
)])  # fmt: skip
def test_each_config(config: Config, target: str) -> None:
    check_config(config, target)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "target"),
    [x for t in ("sm_70", "sm_72", "sm_75", "sm_90", "sm_100", "sm_120") for x in each_config(t)],
)
def test_each_config_on_other_targets(config: Config, target: str) -> None:
    check_config(config, target)


@pytest.mark.parametrize("config", MIXED, ids=str)
def test_factors_of_different_signs(config: Config) -> None:
    """All sums that mma.sync has and wmma has not."""
    product(config, "sm_80", "mma")


def test_no_config_is_forgotten() -> None:
    """61 configs: 12 of them saturate f16 and have ended with PTX 6.4, the rest runs on sm_80."""
    ended = [c for c in CONFIGS if floor(c).until < (9, 0)]
    assert (len(CONFIGS), len(ended), len(each_config("sm_80"))) == (61, 12, 49)
    assert sum(map(has_mma, CONFIGS)) == 61 - 12 - 6  # f16 to f32 and f32 to f16, in three shapes


# --- all pairs of bytes ---------------------------------------------------------------------------


def dispatches(component: str) -> list[dict[str, Array]]:
    """16 launches whose A and B hold each pair of bytes once: A[i][k] = 16 k + i, B[k][j] =
    16 t + j, and sums that differ, C[p] = (37 p mod 1009) - 500 (Sarek, test of integers)."""
    i, k = np.divmod(np.arange(256), 16)
    c = ((37 * np.arange(256)) % 1009 - 500).astype(np.int32)
    return [
        {"a": (16 * k + i).astype(np.uint8), "b": (16 * t + k).astype(np.uint8), "c": c,
         "d": np.zeros(256, np.int32)}
        for t in range(16)
    ]  # fmt: skip


BYTES = """kernel bytes(a: uint8[], b: uint8[], c: int32[], d: int32[]) block(32, 1, 1) {
  fragment x: a 16x16x16 T;
  fragment y: b 16x16x16 T;
  fragment z: accumulator 16x16x16 S;
  load x (a 16x16x16 T) from a[0] stride 16 row;
  load y (b 16x16x16 T) from b[0] stride 16 row;
  load z (accumulator 16x16x16 S) from c[0] stride 16 row;
  z = muladd x, y, z (16x16x16 T*T+S->S);
  store z (accumulator 16x16x16 S) to d[0] stride 16 row;
}"""


def summed(given: Mapping[str, Array], text: str, via: str) -> Array:
    found = {n: v.copy() for n, v in given.items()}
    report = launch(lower(text, via=via), found)
    assert report.clean, report.findings
    return found["d"].reshape(16, 16)


@pytest.mark.parametrize("via", ["wmma", "mma"])
@pytest.mark.parametrize("component", ["s8", "u8"])
def test_all_pairs_of_bytes(component: str, via: str) -> None:
    """The products of whole numbers; with C left out, or B read along a diagonal, every launch
    gives something else."""
    text = BYTES.replace("T", component).replace("S", component[0] + "32")
    word = np.dtype(component.replace("s", "i").replace("8", "1")).type
    added = re.sub(r"  load z .*\n", "", text)
    pairs = set()
    for given in dispatches(component):
        a, b, c = (given[n].reshape(16, 16) for n in "abc")
        exact = a.view(word).astype(np.int32) @ b.view(word).astype(np.int32)
        assert np.array_equal(summed(given, text, via), exact + c)
        assert np.array_equal(summed(given, added, via), exact) and c.any()
        columns = {(int(x), int(y)) for k in range(16) for x in a[:, k] for y in b[k]}
        pairs |= columns
    assert len(pairs) == 65536

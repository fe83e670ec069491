"""The exact model against published and computed results of the machines (the vector file)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from tests.numerics.tensor_core_model import convert, decode, dot, fused_step, ieee_fma, parse
from tests.numerics.tensor_core_vectors import Matrix, Probe, matrices, outputs, probes

TYPES = {"f16": 8, "bf16": 8, "tf32": 4, "e4m3": 16, "e5m2": 16, "f64": 4}


def instruction_of(probe: Probe, architecture: str) -> tuple[str, str, int]:
    """(spelling, architecture, k) of the smallest product that holds the probe."""
    t, c = probe.a_type, probe.c_type
    if architecture == "Hopper(wgmma)":
        return f"wgmma.m64n8k32.{c}.{t}.{t}", "Hopper", 32
    if t in ("e4m3", "e5m2"):
        return f"mma.sync.m16n8k32.{c}.{t}.{t}.{c}", architecture, 32
    if t == "f64" or (t == "f16" and architecture == "Volta"):
        return f"mma.sync.m8n8k4.{c}.{t}.{t}.{c}", architecture, 4
    k = TYPES[t] if probe.k <= TYPES[t] else 2 * TYPES[t]
    return f"mma.sync.m16n8k{k}.{c}.{t}.{t}.{c}", architecture, k


CASES = [(probe, architecture) for probe in probes() for architecture in probe.d]


@pytest.mark.parametrize(("probe", "architecture"), CASES, ids=lambda x: getattr(x, "id", x))
def test_probe(probe: Probe, architecture: str) -> None:
    spelling, machine, k = instruction_of(probe, architecture)
    a, b = probe.factors(k)
    assert dot(a, b, probe.c, spelling, machine) == probe.d[architecture]


def differences(m: Matrix, step: int) -> Iterator[str]:
    """Outputs on which model and file differ; every ``step``-th element is computed."""
    columns = list(zip(*m.b, strict=True))
    places = [(i, j) for i in range(len(m.a)) for j in range(len(columns))][::step]
    for result in m.results:
        for architecture in result.architectures:
            for i, j in places:
                d = dot(
                    m.a[i], columns[j], m.c[i][j], m.op, architecture,
                    scale_a=m.scale_a[i] if m.scale_a else (),
                    scale_b=m.scale_b[j] if m.scale_b else (),
                    satfinite=result.satfinite,
                    bit_operation="and" if result.bit_operation == "and" else "xor",
                )  # fmt: skip
                if d != result.d[i][j]:
                    yield f"{m.id} {architecture} [{i}][{j}]: {d:x} not {result.d[i][j]:x}"


@pytest.mark.parametrize("m", matrices(), ids=lambda m: m.id)
def test_sample_of_matrix(m: Matrix) -> None:
    assert list(differences(m, 37)) == []


@pytest.mark.slow
@pytest.mark.parametrize("m", matrices(), ids=lambda m: m.id)
def test_whole_matrix(m: Matrix) -> None:
    assert list(differences(m, 1)) == []


def test_the_comparison_can_fail() -> None:
    m = next(m for m in matrices() if m.op == "mma.sync.m16n8k16.f32.f16.f16.f32")
    other = [r for r in m.results if "Hopper" in r.architectures]
    # the results of Hopper are not those of Ampere
    wrong = tuple(type(r)(("Ampere",), r.d) for r in other)
    changed = Matrix(m.id, m.op, m.mode, m.types, m.a, m.b, m.c, wrong)
    assert len(list(differences(changed, 1))) > 0


def test_size_of_the_file() -> None:
    # its own count of expected elements
    assert len(probes()) == 94
    assert len(matrices()) == 244
    assert sum(count for _, count in outputs()) == 77_248


@pytest.mark.parametrize(
    ("bits", "type_", "value"),
    [
        (0x0001, "f16", Fraction(1, 2**24)),
        (0xFBFF, "f16", Fraction(-65504)),
        (0x0080, "bf16", Fraction(1, 2**126)),
        (0x3F801FFF, "tf32", Fraction(1)),
        (0x00000001, "f32", Fraction(1, 2**149)),
        (0x7E, "e4m3", Fraction(448)),
        (0x01, "e4m3", Fraction(1, 512)),
        (0x7B, "e5m2", Fraction(57344)),
        (0x1F, "e3m2", Fraction(28)),
        (0x1F, "e2m3", Fraction(15, 2)),
        (0x7, "e2m1", Fraction(6)),
        (0x1, "e2m1", Fraction(1, 2)),
        (0xF, "e2m1", Fraction(-6)),
        (0x00, "ue8m0", Fraction(1, 2**127)),
        (0xFE, "ue8m0", Fraction(2**127)),
        (0xFE, "ue4m3", Fraction(448)),
    ],
)
def test_decode(bits: int, type_: str, value: Fraction) -> None:
    # the largest and smallest values of the formats (PTX ISA, "Alternate Floating-Point Data
    # Formats" and OCP MX)
    assert decode(bits, type_).value == value


@pytest.mark.parametrize(
    ("bits", "type_", "kind"),
    [
        (0x7C00, "f16", "inf"), (0x7C01, "f16", "nan"), (0x7F800001, "tf32", "inf"),
        (0x7F802000, "tf32", "nan"), (0x7F, "e4m3", "nan"), (0x78, "e4m3", "finite"),
        (0xFC, "e5m2", "inf"), (0x7D, "e5m2", "nan"), (0x3F, "e3m2", "finite"),
        (0xFF, "ue8m0", "nan"), (0xFF, "ue4m3", "nan"),
    ],
)  # fmt: skip
def test_decode_of_specials(bits: int, type_: str, kind: str) -> None:
    assert decode(bits, type_).kind == kind


def test_step_truncates_and_overflows_to_infinity() -> None:
    # 2^127 + 2^127 through bf16: 0x7f00 = 2^127, 0x3f80 = 1
    one = fused_step(
        [0x7F00, 0x7F00], [0x3F80, 0x3F80], 0, a_type="bf16", b_type="bf16", c_type="f32",
        fraction_bits=24, zero_exponent=-132, rounding="RZ-FP32",
    )  # fmt: skip
    assert one == 0x7F800000


@pytest.mark.parametrize(
    ("rounding", "d"),
    [
        ("rn", 0x3FF0000000000000), ("rz", 0x3FF0000000000000),
        ("rm", 0x3FF0000000000000), ("rp", 0x3FF0000000000001),
    ],
)  # fmt: skip
def test_rounding_of_f64(rounding: str, d: int) -> None:
    # 1 + 2^-1074 is far nearer to 1 than to its successor
    tiny = (1023 - 537) << 52
    assert dot([tiny], [tiny], 0x3FF << 52, "mma.sync.m8n8k4.f64.f64.f64.f64", "Ampere",
               rounding=rounding) == d  # fmt: skip


@pytest.mark.parametrize(("rounding", "d"), [("rn", 0x7FF << 52), ("rz", (0x7FF << 52) - 1)])
def test_overflow_of_f64(rounding: str, d: int) -> None:
    largest, one = decode((0x7FF << 52) - 1, "f64"), decode(0x3FF << 52, "f64")
    assert ieee_fma(largest, one, largest, "f64", rounding) == d


def test_zero_of_a_cancelled_sum_is_negative_when_rounding_down() -> None:
    one, minus = decode(0x3FF << 52, "f64"), decode(0xBFF << 52, "f64")
    assert ieee_fma(one, one, minus, "f64", "rm") == 1 << 63
    assert ieee_fma(one, one, minus, "f64", "rn") == 0


def test_m8n8k4_without_a_tensor_core_keeps_a_negative_zero() -> None:
    spelling = "mma.sync.m8n8k4.f16.f16.f16.f16"
    a, b = [0x8000] * 4, [0x3C00] * 4
    # (c + p) + q of three negative zeros; the fused step of Turing has only +0
    assert dot(a, b, 0x8000, spelling, "Ampere") == 0x8000
    assert dot(a, b, 0x8000, spelling, "Turing") == 0x0000


def test_m8n8k4_without_a_tensor_core_rounds_each_sum_to_nearest() -> None:
    # 1 + 1.5 * 2^-24 - 1: to nearest 2^-23 remains, the fused step of F = 23 cuts it to 0
    spelling = "mma.sync.m8n8k4.f32.f16.f16.f32"
    a, b = [0x3C00, 0x0C00, 0, 0], [0x3C00, 0x0E00, 0, 0]
    assert dot(a, b, 0xBF800000, spelling, "Ampere") == 0x34000000
    assert dot(a, b, 0xBF800000, spelling, "Turing") == 0


def test_f16_result_of_f32_accumulation_rounds_twice() -> None:
    # 1 + 2^-11 + 2^-40 is above the tie; cut to f32 it is the tie and goes to even
    spelling = "wmma.mma.m16n16k16.f16.f16.f16.f32"
    a, b = [0x3C00, 0x0010] + [0] * 14, [0x3C00, 0x0010] + [0] * 14
    assert dot(a, b, 0x3A000000, spelling, "Ampere") == 0x3C00
    assert convert(0x3F801001, "f32", "f16") == 0x3C01


@pytest.mark.parametrize(
    ("architecture", "d"),
    [("Volta", 0x33800000), ("Turing", 0x33800001), ("Ampere", 0x33800001), ("Hopper", 0x33800001)],
)
def test_wmma_widens_a_subnormal_f16_accumulator(architecture: str, d: int) -> None:
    # 2^-24 + 2^-47: as f16, c counts with exponent -14 and the product is cut; from Turing on c is
    # converted to a normal f32 before the first step, which keeps it
    a, b = [2] + [0] * 15, [1] + [0] * 15
    assert dot(a, b, 0x0001, "wmma.mma.m16n16k16.f32.f16.f16.f16", architecture) == d


def test_parse() -> None:
    i = parse("mma.sync.m16n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.f32.ue4m3")
    assert (i.shape, i.kind, i.scale_type) == ((16, 8, 64), "mxf4nvf4", "ue4m3")
    assert (i.d_type, i.a_type, i.b_type, i.c_type) == ("f32", "e2m1", "e2m1", "f32")

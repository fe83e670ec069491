"""f16, bf16, f32 and f64 arithmetic against exact rational models, every rounding, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import rational_model as model

from ptxsim.numerics import floating
from ptxsim.numerics.formats import BF16, F16, F32, F64, Bits, Format, Rounding

WIDE = [F32, F64]
HALF = [F16, BF16]
DIRECTED: list[Rounding] = ["rn", "rz", "rm", "rp"]
LANES = 2500


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The machine runs everything with NumPy's warnings off."""
    with np.errstate(all="ignore"):
        yield


def lanes(seed: str, fmt: Format, operands: int) -> list[Bits]:
    """Seeded random and edge operands."""
    rng = np.random.default_rng(list(seed.encode()))
    return [model.patterns(rng, fmt, LANES) for _ in range(operands)]


def agree(got: Bits, expected: list[int], operands: list[Bits], fmt: Format) -> None:
    """Compare patterns and name the first lane that differs."""
    assert got.dtype == fmt.dtype
    wanted = np.array(expected, fmt.dtype)
    wrong = np.flatnonzero(got != wanted)
    if len(wrong):
        i = int(wrong[0])
        shown = [hex(int(a[i])) for a in operands]
        pytest.fail(f"{len(wrong)} lanes; {shown}: {int(got[i]):#x} is not {int(wanted[i]):#x}")


def rows(operands: list[Bits]) -> Iterator[tuple[int, ...]]:
    """Operands lane by lane as Python integers."""
    return zip(*(a.tolist() for a in operands), strict=True)


@pytest.mark.parametrize("rounding", DIRECTED)
@pytest.mark.parametrize("fmt", WIDE, ids=str)
@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_binary(name: str, fmt: Format, rounding: Rounding) -> None:
    """add, mul and div of f32 and f64."""
    operands = lanes(name + fmt.name, fmt, 2)
    operation: Callable[..., Bits] = getattr(floating, name)
    reference: Callable[..., int] = getattr(model, name)
    got = operation(*operands, fmt=fmt, rounding=rounding)
    agree(got, [reference(a, b, fmt, rounding) for a, b in rows(operands)], operands, fmt)


@pytest.mark.parametrize("rounding", DIRECTED)
@pytest.mark.parametrize("fmt", WIDE, ids=str)
def test_root_and_reciprocal(fmt: Format, rounding: Rounding) -> None:
    """sqrt and rcp of f32 and f64."""
    (a,) = lanes("root" + fmt.name, fmt, 1)
    got = floating.sqrt(a, fmt=fmt, rounding=rounding)
    agree(got, [model.sqrt(x, fmt, rounding) for (x,) in rows([a])], [a], fmt)
    got = floating.rcp(a, fmt=fmt, rounding=rounding)
    agree(got, [model.div(fmt.one, x, fmt, rounding) for (x,) in rows([a])], [a], fmt)


@pytest.mark.parametrize("rounding", DIRECTED)
@pytest.mark.parametrize("fmt", WIDE, ids=str)
@pytest.mark.parametrize("hard", [False, True])
def test_fma(hard: bool, fmt: Format, rounding: Rounding) -> None:
    """Fma on random operands and on operands built to sit at rounding boundaries."""
    operands = lanes("fma" + fmt.name, fmt, 3)
    if hard:
        operands = list(model.hard_fma(np.random.default_rng(7), fmt, LANES))
    got = floating.fma(*operands, fmt=fmt, rounding=rounding)
    agree(got, [model.fma(*abc, fmt, rounding) for abc in rows(operands)], operands, fmt)


@pytest.mark.parametrize("fmt", HALF, ids=str)
def test_half(fmt: Format) -> None:
    """Add, mul and fma of f16 and bf16, with boundary cases."""
    a, b, c = lanes("half" + fmt.name, fmt, 3)
    agree(floating.add(a, b, fmt=fmt), [model.add(*p, fmt) for p in rows([a, b])], [a, b], fmt)
    agree(floating.mul(a, b, fmt=fmt), [model.mul(*p, fmt) for p in rows([a, b])], [a, b], fmt)
    for operands in ([a, b, c], list(model.hard_fma(np.random.default_rng(8), fmt, LANES))):
        got = floating.fma(*operands, fmt=fmt)
        agree(got, [model.fma(*p, fmt) for p in rows(operands)], operands, fmt)

"""Runs one folded instruction of ``tests/data/folded-float.tsv`` through ptxsim.numerics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxsim.numerics import approximate, convert, convert_packed, floating, half
from ptxsim.numerics.formats import FORMATS, Format

__all__ = ["Folded", "evaluate", "load"]

_DATA = Path(__file__).parent.parent / "data" / "folded-float.tsv"
_WIDTH = {"p": 1, "h": 16, "r": 32, "d": 64}
_UNARY: dict[str, Callable[..., np.ndarray]] = {"abs": floating.abs_, "neg": floating.neg}
_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": floating.add,
    "sub": floating.sub,
    "mul": floating.mul,
    "min": floating.min_,
    "max": floating.max_,
}
_APPROXIMATE: dict[str, Callable[..., np.ndarray]] = {
    "rcp": approximate.rcp,
    "rsqrt": approximate.rsqrt,
    "sqrt": approximate.sqrt,
    "sin": approximate.sin,
    "cos": approximate.cos,
    "lg2": approximate.lg2,
    "ex2": approximate.ex2,
}


@dataclass(frozen=True)
class Folded:
    """One instruction and its cases: operands, result, and how the result may be compared."""

    instruction: str
    registers: tuple[str, ...]
    cases: tuple[tuple[tuple[int, ...], int, str], ...]

    @property
    def width(self) -> int:
        """Width of the destination register."""
        return _WIDTH[self.registers[0]]


def load(*mnemonics: str) -> list[Folded]:
    """The folded instructions of some mnemonics."""
    out = []
    for line in _DATA.read_text().splitlines():
        if line.startswith("#"):
            continue
        instruction, registers, cases = line.split("\t")
        if instruction.split(".")[0] in mnemonics:
            parsed = tuple(_case(c) for c in cases.split(" "))
            out.append(Folded(instruction, tuple(registers.split(",")), parsed))
    return out


def _case(text: str) -> tuple[tuple[int, ...], int, str]:
    operands, result = text.split(">")
    bits, _, kind = result.partition("~")
    return tuple(int(o, 16) for o in operands.split(",")), int(bits, 16), kind or "exact"


def evaluate(folded: Folded) -> list[int]:
    """Our results, as the destination register holds them."""
    columns = list(zip(*(operands for operands, _, _ in folded.cases), strict=True))
    operands = [
        np.array(column, dtype=f"u{_WIDTH[letter] // 8}")
        for column, letter in zip(columns, folded.registers[1:], strict=True)
    ]
    mnemonic, *modifiers = folded.instruction.split(".")
    if mnemonic == "cvt":
        result = _convert(modifiers, operands, folded.width)
    elif mnemonic in ("set", "setp"):
        result = _compare(mnemonic, modifiers, operands)
    else:
        result = _arithmetic(mnemonic, modifiers, operands)
    return [int(bits) for bits in result]


def _arithmetic(mnemonic: str, modifiers: list[Any], operands: list[np.ndarray]) -> np.ndarray:
    ftz = "ftz" in modifiers
    name = modifiers[-1]
    fmt = FORMATS[name.removesuffix("x2")]
    if mnemonic == "testp":
        return floating.testp(modifiers[0], operands[0], fmt=fmt)
    if mnemonic == "div":
        divide = approximate.div_full if "full" in modifiers else approximate.div_approx
        return divide(*operands, ftz=ftz)
    if "approx" in modifiers:
        return _APPROXIMATE[mnemonic](*operands, ftz=ftz)
    function = {**_UNARY, **_BINARY}[mnemonic]
    if name.endswith("x2"):
        return half.each_half(function, *operands, fmt=fmt, ftz=ftz, keep_nan=True)
    return function(*operands, fmt=fmt, ftz=ftz)


def _compare(mnemonic: str, modifiers: list[Any], operands: list[np.ndarray]) -> np.ndarray:
    fmt = FORMATS[modifiers[-1]]
    mask = floating.compare(modifiers[0], *operands, fmt=fmt, ftz="ftz" in modifiers)
    if mnemonic == "setp":
        return mask
    true = FORMATS["f32"].one if modifiers[-2] == "f32" else 0xFFFFFFFF
    return mask * np.uint32(true)


def _integer(name: str) -> tuple[int, bool] | None:
    return (int(name[1:]), name[0] == "s") if name[0] in "us" else None


def _low_bits(a: np.ndarray, width: int) -> np.ndarray:
    return a.astype(f"u{width // 8}")


def _extended(a: np.ndarray, signed: bool, width: int) -> np.ndarray:
    value = a.view(f"i{a.dtype.itemsize}") if signed else a
    return value.astype(f"i{width // 8}").view(f"u{width // 8}")


def _convert(modifiers: list[str], operands: list[np.ndarray], width: int) -> np.ndarray:
    rounding: Any
    *flags, target, source = modifiers
    ftz, sat, satfinite = (flag in flags for flag in ("ftz", "sat", "satfinite"))
    rounding = next((f for f in flags if f[0] == "r" and f != "relu"), None)
    a = operands[0]
    to, of = _integer(target), _integer(source)
    if of and to:
        bits = convert.int_to_int(
            _low_bits(a, of[0]), from_width=of[0], from_signed=of[1], to_width=to[0],
            to_signed=to[1], sat=sat,
        )  # fmt: skip
        return _extended(bits, to[1], width)
    if of:
        return convert.int_to_float(
            _low_bits(a, of[0]), width=of[0], signed=of[1], fmt=FORMATS[target],
            rounding=rounding, sat=sat,
        )  # fmt: skip
    fmt: Format = FORMATS[source]
    if to:
        bits = convert.float_to_int(
            a,
            fmt=fmt,
            width=to[0],
            signed=to[1],
            rounding=rounding,
            ftz=ftz,
        )
        return _extended(bits, to[1], width)
    if rounding in ("rni", "rzi", "rmi", "rpi"):
        return convert.round_to_integral(a, fmt=fmt, rounding=rounding, ftz=ftz, sat=sat)
    if target.endswith("x2"):
        return convert_packed.pack_pair(*operands, target=FORMATS[target[:-2]], ftz=ftz)
    return convert.float_to_float(
        a, source=fmt, target=FORMATS[target], rounding=rounding or "rn",
        ftz=ftz, sat=sat, satfinite=satfinite,
    )  # fmt: skip


def differences(folded: Folded, ulps: int = 0) -> list[str]:
    """The cases that disagree: NaNs by class, host approximations within ``ulps`` patterns."""
    nan_limit = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0 << 48}
    out = []
    for (operands, want, kind), got in zip(folded.cases, evaluate(folded), strict=True):
        if (
            kind == "nan"
            and not folded.instruction.endswith("x2")
            and "x2." not in folded.instruction
        ):
            limit = nan_limit[folded.width]
            magnitude = got & ((1 << (folded.width - 1)) - 1)
            agree = magnitude > limit
        elif kind == "approx":
            agree = abs(got - want) <= ulps
        else:
            agree = got == want
        if not agree:
            shown = ",".join(f"{o:x}" for o in operands)
            out.append(f"{folded.instruction} {shown}: {got:x}, ptxas {want:x}")
    return out

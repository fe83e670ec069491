"""Runs one folded instruction of ``tests/data/folded-integer.tsv`` through ptxsim.numerics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ptxsim.numerics import bits, integer, select, video

__all__ = ["FAMILIES", "evaluate", "load"]

_DATA = Path(__file__).parent.parent / "data" / "folded-integer.tsv"
_DTYPES = {"p": np.bool_, "h": np.uint16, "r": np.uint32, "d": np.uint64}

Row = tuple[list[int], int]


def load(*families: str) -> dict[str, list[Row]]:
    """The rows of the named instructions: for each pattern a list of operands and result."""
    table: dict[str, list[Row]] = {}
    for line in _DATA.read_text().splitlines():
        if line.startswith("#"):
            continue
        pattern, operands, result = line.split("\t")
        if pattern.split(".")[0] in families:
            row = ([int(x, 16) for x in operands.split(",")], int(result, 16))
            table.setdefault(pattern, []).append(row)
    return table


def evaluate(pattern: str, rows: list[Row]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Our results for all rows of a pattern at once, and the folded ones."""
    name, letters = pattern.split(" ")
    dtypes = [_DTYPES[letter] for letter in letters.split(",")]
    columns = zip(*(operands for operands, _ in rows), strict=True)
    operands: list[npt.NDArray[Any]] = [
        np.array(c, t) for c, t in zip(columns, dtypes[1:], strict=True)
    ]
    family, *modifiers = name.split(".")
    return FAMILIES[family](modifiers, *operands), np.array([r for _, r in rows], dtypes[0])


def _type(modifiers: list[str], index: int = -1) -> dict[str, Any]:
    return {"width": int(modifiers[index][1:]), "signed": modifiers[index][0] == "s"}


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda m, *v: function(*v, width=_type(m)["width"])


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda m, *v: function(*v, **_type(m))


def _add_sub(plain: Callable[..., Any], saturated: Callable[..., Any]) -> Callable[..., Any]:
    def run(m: list[str], *v: Any) -> Any:
        return saturated(*v, **_type(m)) if "sat" in m else plain(*v, width=_type(m)["width"])

    return run


def _mul(m: list[str], a: Any, b: Any) -> Any:
    if m[0] == "lo":
        return integer.mul_lo(a, b, width=_type(m)["width"])
    return {"hi": integer.mul_hi, "wide": integer.mul_wide}[m[0]](a, b, **_type(m))


def _mul24(m: list[str], a: Any, b: Any) -> Any:
    return integer.mul24(a, b, signed=_type(m)["signed"], high=m[0] == "hi")


def _mad24(m: list[str], a: Any, b: Any, c: Any) -> Any:
    if "sat" in m:
        return integer.mad24_hi_sat(a, b, c)
    return integer.add(_mul24(m, a, b), c, width=32)


def _compare(m: list[Any], a: Any, b: Any) -> Any:
    return integer.compare(m[0], a, b, **_type(m))


def _set(m: list[str], a: Any, b: Any) -> Any:
    return bits.extend(
        _compare(m, a, b).view(np.uint8) * np.uint8(255), from_width=8, to_width=32, signed=True
    )


def _bfind(m: list[str], a: Any) -> Any:
    return bits.bfind(a, shiftamt="shiftamt" in m, **_type(m))


def _simd(op: str, parts: Literal[2, 4]) -> Callable[..., Any]:
    def run(m: list[str], a: Any, b: Any, c: Any) -> Any:
        d_signed, a_signed, b_signed = (t == "s32" for t in m)
        return video.simd(op, a, b, c, parts=parts, signed=(d_signed, a_signed, b_signed))

    return run


FAMILIES: dict[str, Callable[..., Any]] = {
    "abs": _plain(integer.abs_),
    "add": _add_sub(integer.add, integer.add_sat),
    "and": lambda m, a, b: a & b,
    "bfe": _typed(bits.bfe),
    "bfi": _plain(bits.bfi),
    "bfind": _bfind,
    "brev": _plain(bits.brev),
    "clz": _plain(bits.clz),
    "cnot": _plain(bits.cnot),
    "fns": lambda m, *v: bits.fns(*v),
    "mad": lambda m, a, b, c: _mul(m, a, b) + c,
    "mad24": _mad24,
    "max": _typed(integer.max_),
    "min": _typed(integer.min_),
    "mul": _mul,
    "mul24": _mul24,
    "neg": _plain(integer.neg),
    "not": lambda m, a: ~a,
    "or": lambda m, a, b: a | b,
    "popc": _plain(bits.popc),
    "sad": _typed(integer.sad),
    "selp": lambda m, a, b, p: select(p, a, b),
    "set": _set,
    "setp": _compare,
    "shf": lambda m, *v: bits.shf(*v, direction=m[0], mode=m[1]),
    "shl": _plain(bits.shl),
    "shr": _typed(bits.shr),
    "slct": lambda m, a, b, c: select(
        integer.compare("ge", c, np.zeros(1, np.uint32), **_type(m)), a, b
    ),
    "sub": _add_sub(integer.sub, integer.sub_sat),
    "szext": lambda m, *v: bits.szext(*v, mode=m[0], signed=_type(m)["signed"]),
    "vadd2": _simd("add", 2),
    "vadd4": _simd("add", 4),
    "vavrg2": _simd("avrg", 2),
    "vmax2": _simd("max", 2),
    "vmin2": _simd("min", 2),
    "vsub2": _simd("sub", 2),
    "vsub4": _simd("sub", 4),
    "xor": lambda m, a, b: a ^ b,
}

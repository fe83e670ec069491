"""Arithmetic of the interpreter of loops: element types as bit patterns, operations, products."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxsim.matrix.layouts import parse_shape
from ptxsim.numerics.convert import float_to_float, float_to_int, int_to_float, int_to_int
from ptxsim.numerics.floating import add, fma, max_, min_, mul, neg, sub
from ptxsim.numerics.formats import FORMATS, TF32, Bits, Format
from ptxsim.numerics.tensor_core import float_product, integer_product
from ptxsim.numerics.tensor_core_rules import float_rule

__all__ = ["carrier", "encode", "operate", "product", "tf32_of"]

Factors: TypeAlias = NDArray[Any]

_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGER = re.compile(r"([su])(8|16|32|64)$")


def carrier(dtype: str) -> np.dtype[Any]:
    """The unsigned NumPy type that holds an element.

    >>> carrier("bf16")
    dtype('uint16')
    """
    if dtype in (*_FLOATS, "tf32"):
        return FORMATS[dtype].dtype
    return np.dtype(f"u{_integer(dtype)[1] // 8}")


def _integer(dtype: str) -> tuple[bool, int]:
    found = _INTEGER.match(dtype)
    if found is None:
        raise ValueError(f"no elements of type '{dtype}'")
    return found[1] == "s", int(found[2])


def encode(value: float | int, dtype: str) -> Any:
    """The pattern of a constant.

    >>> hex(encode(-1.0, "bf16"))
    '0xbf80'
    """
    if dtype in (*_FLOATS, "tf32"):
        double = np.array([value], np.float64).view(np.uint64)
        fmt = FORMATS["f32" if dtype == "tf32" else dtype]
        return double[0] if dtype == "f64" else _narrow(double, fmt)[0]
    wide = np.array([value], np.int64)
    if wide[0] != value:
        raise ValueError(f"{value} is no {dtype}")
    return wide.astype(carrier(dtype))[0]


def _narrow(double: Bits, fmt: Format) -> Bits:
    return float_to_float(double, source=FORMATS["f64"], target=fmt)


_FLOAT_OPERATIONS: dict[str, Callable[..., Bits]] = {
    "add": add, "sub": sub, "mul": mul, "fma": fma, "max": max_, "min": min_, "neg": neg,
}  # fmt: skip
_INTEGER_OPERATIONS: dict[str, Callable[..., NDArray[Any]]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "fma": lambda a, b, c: a * b + c,
}  # fmt: skip
_ARITY = {"fma": 3, "neg": 1, "cast": 1}


def operate(op: str, dtype: str, sources: Sequence[str], operands: Sequence[Bits]) -> Bits:
    """An operation on patterns of the source types, with a result of ``dtype``.

    Floats round to nearest even, to integers towards zero; integers wrap.
    """
    if len(operands) != _ARITY.get(op, 2):
        raise ValueError(f"{op} has {_ARITY.get(op, 2)} sources, not {len(operands)}")
    flat = [np.ascontiguousarray(o).reshape(-1) for o in operands]
    with np.errstate(all="ignore"):
        if op == "cast":
            result = _cast(sources[0], dtype, flat[0])
        elif any(source != dtype for source in sources):
            raise ValueError(f"{op} of {', '.join(sources)} has no result of {dtype}")
        else:
            result = _same_type(op, dtype, flat)
    return result.reshape(operands[0].shape)


def _same_type(op: str, dtype: str, operands: Sequence[Bits]) -> Bits:
    operations = _FLOAT_OPERATIONS if dtype in _FLOATS else _INTEGER_OPERATIONS
    if op not in operations:
        raise ValueError(f"no operation '{op}' of {dtype}")
    if dtype in _FLOATS:
        return operations[op](*operands, fmt=FORMATS[dtype])
    signed, width = _integer(dtype)
    own = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    return np.asarray(operations[op](*(o.view(own) for o in operands)), own).view(carrier(dtype))


def _cast(source: str, target: str, bits: Bits) -> Bits:
    if source == target:
        return bits
    if source in _FLOATS and target in _FLOATS:
        return float_to_float(bits, source=FORMATS[source], target=FORMATS[target])
    if source in _FLOATS:
        signed, width = _integer(target)
        return float_to_int(
            bits, fmt=FORMATS[source], width=width, signed=signed, rounding="rzi"
        ).astype(carrier(target))
    signed, width = _integer(source)
    if target in _FLOATS:
        return int_to_float(bits, width=width, signed=signed, fmt=FORMATS[target])
    to_signed, to_width = _integer(target)
    return int_to_int(
        bits, from_width=width, from_signed=signed, to_width=to_width, to_signed=to_signed
    )


def tf32_of(bits: Bits) -> Bits:
    """f32 rounded to tf32, to nearest with ties away from zero, as cvt.rna does it."""
    return float_to_float(
        np.ascontiguousarray(bits).reshape(-1), source=FORMATS["f32"], target=TF32, rounding="rna"
    ).reshape(bits.shape)


# --- products -------------------------------------------------------------------------------------


def product(
    a: Factors,
    b: Factors,
    c: Bits,
    *,
    types: tuple[str, str, str],
    instruction: str,
    target: int,
) -> Bits:
    """``a @ b + c`` of stacks of matrices [W, m, k], [W, k, n], [W, m, n] by mma instructions.

    The steps of k follow each other, each with the result of the one before as accumulator.
    """
    step = parse_shape(instruction)[2]
    for first in range(0, a.shape[2], step):
        part = slice(first, first + step)
        c = _step(a[:, :, part], b[:, part], c, types, instruction, target)
    return c


def _step(
    a: Bits, b: Bits, c: Bits, types: tuple[str, str, str], instruction: str, target: int
) -> Bits:
    type_a, type_b, type_c = types
    if type_c == "s32":
        signs = [width if signed else 0 for signed, width in map(_integer, (type_a, type_b))]
        return integer_product(
            np.ascontiguousarray(a), np.ascontiguousarray(b), c,
            a_signed=signs[0], b_signed=signs[1], saturate=False,
        )  # fmt: skip
    factor = TF32 if type_a == "tf32" else FORMATS[type_a]
    if type_a != type_b or type_c not in ("f16", "f32"):
        raise ValueError(f"no mma of {type_a} and {type_b} with {type_c}")
    accumulator = FORMATS[type_c]
    name = "mma.m8n8k4" if instruction == "m8n8k4" else "mma"
    return float_product(
        np.ascontiguousarray(a), np.ascontiguousarray(b), c,
        formats=(factor, factor, accumulator, accumulator),
        rule=float_rule(name, factor.name, target),
    )  # fmt: skip

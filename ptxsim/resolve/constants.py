"""Constant expressions (PTX ISA 9.1, Constants: 4.5.1 to 4.5.6).

Integer expressions are evaluated in 64 bits, signed unless an operand is unsigned; ``%`` treats
both operands as unsigned, ``~`` gives unsigned, a shift has the type of its left operand, and
comparisons and logic give signed 0 or 1.  Float expressions are evaluated in double precision.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..diagnostics import Span
from ..syntax import ast

__all__ = ["ConstantError", "FloatValue", "IntValue", "evaluate"]

_M64 = (1 << 64) - 1
WARP_SZ = 32


@dataclass(frozen=True, slots=True)
class IntValue:
    """A 64-bit integer constant as a Python number in the range of its signedness."""

    value: int
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class FloatValue:
    """A double constant; ``single_bits`` keeps the exact pattern of a ``0f`` literal."""

    value: float
    single_bits: int | None = None


class ConstantError(Exception):
    """Why an expression has no constant value, with the place."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.message = message
        self.span = span


def _wrap(value: int, unsigned: bool) -> IntValue:
    value &= _M64
    if not unsigned and value >> 63:
        value -= 1 << 64
    return IntValue(value, unsigned)


def evaluate(node: ast.Operand) -> IntValue | FloatValue:
    """The value of a constant expression; :class:`ConstantError` if it has none."""
    match node:
        case ast.IntLiteral(value, unsigned):
            if value > _M64:
                raise ConstantError(f"integer constant {node.text} exceeds 64 bits", node.span)
            return _wrap(value, unsigned or value >> 63 == 1)
        case ast.FloatLiteral(bits, kind):
            if kind == "0f":
                return FloatValue(struct.unpack("<f", struct.pack("<I", bits))[0], bits)
            return FloatValue(struct.unpack("<d", struct.pack("<Q", bits))[0])
        case ast.Name("WARP_SZ"):
            return IntValue(WARP_SZ)
        case ast.Unary(operator, operand):
            return _unary(operator, evaluate(operand), node.span)
        case ast.Cast(type_name, operand):
            if type_name not in ("s64", "u64"):
                raise ConstantError(
                    f"a constant is cast to .s64 or .u64, not to .{type_name}", node.span
                )
            inner = evaluate(operand)
            if isinstance(inner, FloatValue):
                raise ConstantError("a float cannot be cast in a constant expression", node.span)
            return _wrap(inner.value, type_name == "u64")
        case ast.Conditional(condition, yes, no):
            chosen = evaluate(condition)
            if isinstance(chosen, FloatValue):
                raise ConstantError("the condition of ?: must be an integer", node.span)
            a, b = evaluate(yes), evaluate(no)
            result = a if chosen.value else b
            if isinstance(a, IntValue) and isinstance(b, IntValue) and isinstance(result, IntValue):
                return _wrap(result.value, a.unsigned or b.unsigned)
            return result
        case ast.Binary(operator, left, right):
            return _binary(operator, evaluate(left), evaluate(right), node.span)
    raise ConstantError("a constant expression is expected here", node.span)


def _unary(operator: str, value: IntValue | FloatValue, span: Span) -> IntValue | FloatValue:
    if isinstance(value, FloatValue):
        if value.single_bits is not None:
            raise ConstantError("a 0f constant may not enter an expression", span)
        if operator == "-":
            return FloatValue(-value.value)
        if operator == "+":
            return value
        raise ConstantError(f"operator {operator} does not apply to a float", span)
    if operator == "-":
        return _wrap(-value.value, value.unsigned)
    if operator == "~":
        return _wrap(~value.value, True)
    if operator == "!":
        return IntValue(int(value.value == 0))
    return value


def _binary(
    operator: str, a: IntValue | FloatValue, b: IntValue | FloatValue, span: Span
) -> IntValue | FloatValue:
    if isinstance(a, FloatValue) or isinstance(b, FloatValue):
        return _float_binary(operator, a, b, span)
    unsigned = a.unsigned or b.unsigned
    x, y = a.value, b.value
    if operator in ("<<", ">>"):
        count = y & _M64
        if count >= 64:
            return _wrap(-1 if operator == ">>" and x < 0 else 0, a.unsigned)
        return _wrap(x << count if operator == "<<" else x >> count, a.unsigned)
    if operator in ("&&", "||"):
        return IntValue(int((x != 0 and y != 0) if operator == "&&" else (x != 0 or y != 0)))
    if unsigned or operator == "%":
        x, y = x & _M64, y & _M64
    if operator in ("/", "%"):
        if y == 0:
            raise ConstantError("division by zero in a constant expression", span)
        if operator == "%":
            return _wrap(x % y, unsigned)
        quotient = abs(x) // abs(y)
        return _wrap(-quotient if (x < 0) != (y < 0) else quotient, unsigned)
    compare = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}
    if operator in compare:
        return IntValue(int(compare[operator]))
    value = {"+": x + y, "-": x - y, "*": x * y, "&": x & y, "^": x ^ y, "|": x | y}[operator]
    return _wrap(value, unsigned)


def _float_binary(
    operator: str, a: IntValue | FloatValue, b: IntValue | FloatValue, span: Span
) -> IntValue | FloatValue:
    if isinstance(a, IntValue) or isinstance(b, IntValue):
        raise ConstantError("integer and float constants cannot be mixed", span)
    if a.single_bits is not None or b.single_bits is not None:
        raise ConstantError("a 0f constant may not enter an expression", span)
    x, y = a.value, b.value
    compare = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}
    if operator in compare:
        return IntValue(int(compare[operator]))
    try:
        if operator == "/":
            return FloatValue(x / y)
        return FloatValue({"+": x + y, "-": x - y, "*": x * y}[operator])
    except ZeroDivisionError:
        raise ConstantError("division by zero in a constant expression", span) from None
    except KeyError:
        raise ConstantError(f"operator {operator} does not apply to floats", span) from None

"""Constant expressions against a model of their own (PTX ISA 4.5, "Constant Expressions").

The model keeps a constant as 64 bits and a mark for unsigned, and computes with NumPy's
fixed-width integers, so it shares neither code nor number representation with the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxsim.resolve.constants import ConstantError, IntValue, evaluate
from ptxsim.syntax import ast, parse

Bits = tuple[int, bool]  # 64 bits as a number from 0, and whether they are unsigned

_UNSIGNED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "&": np.bitwise_and, "|": np.bitwise_or,
    "^": np.bitwise_xor,
}  # fmt: skip
_COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal,
    "!=": np.not_equal,
}  # fmt: skip


class DivisionByZero(Exception):
    """The model's word for an expression without a value."""


def _array(value: Bits, unsigned: bool) -> np.ndarray:
    bits = np.array([value[0]], np.uint64)
    return bits if unsigned else bits.view(np.int64)


def _bits(value: np.ndarray) -> int:
    return int(value.view(np.uint64)[0])


def _divided(a: Bits, b: Bits, unsigned: bool) -> int:
    """Quotient towards zero; magnitudes are divided and the sign put back."""
    if unsigned:
        return _bits(_array(a, True) // _array(b, True))
    negative = (a[0] >> 63) != (b[0] >> 63)
    one, other = (_array((-v[0] % 2**64 if v[0] >> 63 else v[0], True), True) for v in (a, b))
    quotient = _bits(one // other)
    return -quotient % 2**64 if negative else quotient


def _shifted(operator: str, a: Bits, count: int) -> int:
    """Bit by bit: shifts by 64 and more leave zeros, or sign bits for a signed ``>>``."""
    fill = a[0] >> 63 if operator == ">>" and not a[1] else 0
    if count >= 64:
        return (2**64 - 1) * fill
    bits = [a[0] >> n & 1 for n in range(64)]
    moved = bits[count:] + [fill] * count if operator == ">>" else [0] * count + bits[: 64 - count]
    return sum(bit << n for n, bit in enumerate(moved))


def _binary(operator: str, a: Bits, b: Bits) -> Bits:
    unsigned = a[1] or b[1]
    if operator in ("&&", "||"):
        return int((any if operator == "||" else all)((a[0], b[0]))), False
    if operator in ("<<", ">>"):
        return _shifted(operator, a, b[0]), a[1]
    if operator in _COMPARE:
        return int(_COMPARE[operator](_array(a, unsigned), _array(b, unsigned))[0]), False
    if operator in ("/", "%"):
        if b[0] == 0:
            raise DivisionByZero
        if operator == "%":  # both operands count as unsigned; the type is the usual one
            return _bits(_array(a, True) % _array(b, True)), unsigned
        return _divided(a, b, unsigned), unsigned
    return _bits(_UNSIGNED[operator](_array(a, True), _array(b, True))), unsigned


def _model(node: ast.Expression) -> Bits:
    match node:
        case ast.IntLiteral(value, unsigned):
            return value, unsigned or value >= 2**63
        case ast.Name("WARP_SZ"):
            return 32, False
        case ast.Cast(name, operand):
            return _model(operand)[0], name == "u64"
        case ast.Unary(operator, operand):
            bits, unsigned = _model(operand)
            return {
                "+": (bits, unsigned),
                "-": (-bits % 2**64, unsigned),
                "~": (bits ^ (2**64 - 1), True),
                "!": (int(bits == 0), False),
            }[operator]
        case ast.Binary(operator, left, right):
            return _binary(operator, _model(left), _model(right))
        case ast.Conditional(condition, yes, no):
            chosen, (a, b) = _model(condition)[0], (_model(yes), _model(no))
            return (a if chosen else b)[0], a[1] or b[1]
    raise AssertionError(node)


# --- generated expressions ------------------------------------------------------------------------

_EDGES = [0, 1, 2, 31, 63, 64, 65, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
_NUMBERS = st.one_of(st.sampled_from(_EDGES), st.integers(0, 2**64 - 1), st.integers(0, 70))
_LEAVES = st.one_of(
    st.builds(ast.IntLiteral, _NUMBERS, st.booleans()),
    st.just(ast.Name("WARP_SZ")),
)
_OPERATORS = ["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "&&", "||", *_COMPARE]


def _larger(parts: st.SearchStrategy[ast.Expression]) -> st.SearchStrategy[ast.Expression]:
    return st.one_of(
        st.builds(ast.Unary, st.sampled_from("+-~!"), parts),
        st.builds(ast.Binary, st.sampled_from(_OPERATORS), parts, parts),
        st.builds(ast.Binary, st.sampled_from(_OPERATORS), parts, parts),
        st.builds(ast.Conditional, parts, parts, parts),
        st.builds(ast.Cast, st.sampled_from(("s64", "u64")), parts),
    )


_EXPRESSIONS = st.recursive(_LEAVES, _larger, max_leaves=10)


def _evaluated(node: ast.Expression) -> Bits | None:
    try:
        value = evaluate(node)
    except ConstantError as error:
        assert "division by zero" in error.message
        return None
    assert isinstance(value, IntValue)
    low, high = (0, 2**64) if value.unsigned else (-(2**63), 2**63)
    assert low <= value.value < high
    return value.value % 2**64, value.unsigned


@settings(max_examples=600, deadline=None, derandomize=True)
@given(_EXPRESSIONS)
def test_generated_expressions(node: ast.Expression) -> None:
    try:
        expected = _model(node)
    except DivisionByZero:
        assert _evaluated(node) is None
    else:
        assert _evaluated(node) == expected


@pytest.mark.parametrize("operator", _OPERATORS)
def test_edges_of_every_operator(operator: str) -> None:
    leaves = [ast.IntLiteral(v, u) for v in _EDGES for u in (False, True)]
    for left in leaves:
        for right in leaves:
            node = ast.Binary(operator, left, right)
            if operator in ("/", "%") and right.value == 0:
                assert _evaluated(node) is None
            else:
                assert _evaluated(node) == _model(node), (left, right)


# Worked by hand from the type rules of "Constant Expressions"; checks both sides of the above.
@pytest.mark.parametrize(
    ("text", "bits", "unsigned"),
    [
        ("-1 < 1", 1, False),
        ("-1 < 1U", 0, False),  # mixed: compared as unsigned
        ("-7 / 2", 2**64 - 3, False),  # towards zero
        ("-7 / 2U", (2**64 - 7) // 2, True),
        ("-7 % 2", 1, False),  # 2**64-7 is odd; as signed numbers it would be -1
        ("~0", 2**64 - 1, True),
        ("~0 > 0", 1, False),  # ~ gives unsigned, so not -1
        ("-1 >> 1", 2**64 - 1, False),
        ("-1 >> 1U", 2**64 - 1, False),  # the type of a shift is that of its left operand
        ("~0 >> 1", 2**63 - 1, True),
        ("-1 >> 64", 2**64 - 1, False),
        ("1 << 64", 0, False),
        ("1 << 63", 2**63, False),
        ("0x8000000000000000 / 2", 2**62, True),  # too big for signed
        ("9223372036854775807 + 1", 2**63, False),
        ("!5 + !0", 1, False),
        ("0 ? 1U : -1", 2**64 - 1, True),
        ("(.u64) -1 > 0", 1, False),
        ("(.s64) ~0 > 0", 0, False),
    ],
)
def test_worked_by_hand(text: str, bits: int, unsigned: bool) -> None:
    declaration = parse(f".global .b64 x = {text};").items[0]
    assert isinstance(declaration, ast.VariableDeclaration)
    node = declaration.variables[0].initializer
    assert node is not None
    assert not isinstance(node, ast.InitializerList | ast.FieldInitializer)
    assert _evaluated(node) == (bits, unsigned)
    assert _model(node) == (bits, unsigned)

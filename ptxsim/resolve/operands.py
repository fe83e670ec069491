"""The operands of an instruction, judged by the operand list of its form."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..diagnostics import Span, did_you_mean
from ..isa.record import Form, Instruction, Mods, OperandSpec
from ..syntax import ast
from ..types import SCALAR_TYPES, ScalarType
from .addresses import address, address_part, check_pointer
from .constants import ConstantError
from .scope import Scope
from .typed import LabelRef, LabelTable, OperandValue, PredicatePair, Register, RegisterGroup, Sink
from .values import Mismatch, group, value

__all__ = ["CARRY_FLAG", "OperandList"]

#: The name under which a function's carry flag is declared; no text can spell it.
CARRY_FLAG = "CC.CF"

_PRED = SCALAR_TYPES["pred"]
_PREDICATE = OperandSpec("p", "value", "pred", written=True, read=False, sink=True)


@dataclass(slots=True)
class _Place:
    """One operand of a form under certain modifiers: the types of its elements."""

    spec: OperandSpec
    types: tuple[ScalarType, ...] = ()
    #: a brace group, even of one element
    several: bool = False
    #: the operands between one pair of brackets
    parts: tuple[_Place, ...] = ()
    #: names of the types of registers that were seen to fit
    fitting: set[str] = field(default_factory=set)

    @staticmethod
    def of(record: Instruction, spec: OperandSpec, m: Mods) -> _Place:
        if spec.kind == "parts":
            return _Place(spec, parts=tuple(_Place.of(record, part, m) for part in spec.parts))
        if spec.kind != "value" or not spec.type:
            return _Place(spec)
        types = record.types_of(spec.type, m)
        count = record.count_of(spec.count, m)
        if count and len(types) == 1:
            types = types * count
        return _Place(spec, types, bool(count) or len(types) > 1)


class OperandList:
    """The operand list of a form under certain modifiers, which binds the operands of a text."""

    def __init__(self, record: Instruction, form: Form, m: Mods) -> None:
        specs = form.operands
        self.is_call = len(specs) == 1 and specs[0].name == "call"
        self.has_parts = any(s.kind == "parts" for s in specs)
        self._hidden = tuple(s.name for s in specs if s.hidden)
        shown = [s for s in specs if not s.hidden and (not s.needs or m[s.needs])]
        self._places = tuple(_Place.of(record, s, m) for s in shown)
        self._required = sum(not s.optional for s in shown)

    def bind(self, node: ast.Instruction, scope: Scope) -> dict[str, OperandValue]:
        """Typed operands by name, or :class:`Mismatch` for the first that does not fit."""
        given = node.operands
        places = self._places
        if len(given) != len(places):
            places = self._present(node)
        out: dict[str, OperandValue] = {}
        try:
            for place, operand in zip(places, given, strict=True):
                if isinstance(operand, ast.Name):
                    entity = scope.find(operand.text)
                    if isinstance(entity, Register) and entity.type.name in place.fitting:
                        out[place.spec.name] = entity
                        continue
                _bind(place, operand, scope, out)
        except Mismatch as error:
            error.score += len(out)
            raise
        except ConstantError as error:
            raise Mismatch(error.message, error.span, len(out), "PTX108") from None
        for name in self._hidden:
            flag = scope.find(CARRY_FLAG)
            assert isinstance(flag, Register)
            out[name] = flag
        return out

    def span_of(self, name: str, node: ast.Instruction) -> Span:
        """Where an operand stands: ``c``, or an element of a group, ``c[1]``."""
        name, _, index = name.rstrip("]").partition("[")
        for place, operand in zip(self._present(node), node.operands, strict=True):
            pairs = [(place, operand)]
            if place.parts and isinstance(operand, ast.Address):
                pairs = list(zip(place.parts, operand.parts, strict=False))
            for part, given in pairs:
                if part.spec.name != name:
                    continue
                if index and isinstance(given, ast.Vector):
                    return given.elements[int(index)].span
                return given.span
        return node.span

    def _present(self, node: ast.Instruction) -> tuple[_Place, ...]:
        """The places of operands that are given; of the optional ones the first are left out."""
        given, places, required = len(node.operands), self._places, self._required
        if not required <= given <= len(places):
            wanted = str(required) if required == len(places) else f"{required} to {len(places)}"
            many = "operand" if wanted == "1" else "operands"
            names = f" ({', '.join(p.spec.name for p in places)})" if places else ""
            surplus = node.operands[len(places) :]
            raise Mismatch(
                f"'{'.'.join(node.opcode)}' takes {wanted} {many}{names}, {given} given",
                surplus[0].span.to(surplus[-1].span) if surplus else node.opcode_span,
                -1,  # a form with as many operands is more likely meant
                "PTX105",
            )
        optional = [p for p in places if p.spec.optional]
        left_out = optional[: len(places) - given]
        return tuple(p for p in places if not any(p is other for other in left_out))


def _bind(place: _Place, operand: ast.Operand, scope: Scope, out: dict[str, OperandValue]) -> None:
    spec = place.spec
    if spec.kind == "address":
        out[spec.name] = address(operand, scope)
        return
    if spec.kind == "raw":
        out[spec.name] = _raw(spec.name, operand, scope)
        return
    if spec.kind == "parts":
        _bind_parts(place, operand, scope, out)
        return
    if spec.pair and isinstance(operand, ast.Pair):
        out[spec.name] = _pair(place, operand, scope)
        return
    if spec.paired:
        raise Mismatch(f"operand {spec.name} is a pair '{spec.name}|p'", operand.span)
    types = place.types
    if spec.padded:
        types = _padded(types, operand)
    if place.several or len(types) > 1:
        out[spec.name] = group(spec, types, operand, scope)
        return
    if isinstance(operand, ast.Vector) and len(operand.elements) == 1:
        operand = operand.elements[0]
    if spec.count and isinstance(operand, ast.Name) and operand.text == "_":
        raise Mismatch("the sink '_' is legal only as an element of a group", operand.span)
    out[spec.name] = found = value(spec, types[0], operand, scope)
    if isinstance(found, Register) and types[0].kind != "o":
        place.fitting.add(found.type.name)


def _pair(place: _Place, operand: ast.Pair, scope: Scope) -> PredicatePair:
    spec = place.spec
    first: OperandValue
    if place.several:
        first = group(spec, place.types, operand.first, scope)
    else:
        first = value(spec, place.types[0], operand.first, scope)
    second = value(_PREDICATE, _PRED, operand.second, scope)
    assert isinstance(first, Register | Sink | RegisterGroup)
    assert isinstance(second, Register | Sink)
    if isinstance(second, Sink):
        if place.several or spec.paired:
            raise Mismatch("the sink '_' is not legal as the predicate here", operand.span)
        if isinstance(first, Sink):
            raise Mismatch("both destinations are the sink '_'", operand.span)
    return PredicatePair(first, second)


def _bind_parts(
    place: _Place, operand: ast.Operand, scope: Scope, out: dict[str, OperandValue]
) -> None:
    """The operands between one pair of brackets, each under its own name."""
    if not isinstance(operand, ast.Address):
        raise Mismatch("an address [...] is expected here", operand.span)
    parts = place.parts
    if len(operand.parts) < len(parts):
        parts = tuple(p for p in parts if not p.spec.optional)
    if len(operand.parts) != len(parts):
        names = ", ".join(p.spec.name for p in parts)
        raise Mismatch(f"[{names}] is expected here", operand.span)
    for part, given in zip(parts, operand.parts, strict=True):
        spec = part.spec
        if spec.kind == "address" or spec.pointer:
            if len(parts) > 1 and isinstance(given, ast.Binary):
                raise Mismatch("no offset is legal here", given.span)
            out[spec.name] = found = address_part(given, scope)
            if spec.pointer:
                check_pointer(spec, part.types[0], found, given.span)
        else:
            _bind(part, given, scope, out)


def _padded(types: tuple[ScalarType, ...], operand: ast.Operand) -> tuple[ScalarType, ...]:
    """The types of as many elements as are given: coordinates of any geometry may be a .v4.

    PTX ISA 9.1, tex.
    """
    given = len(operand.elements) if isinstance(operand, ast.Vector) else 0
    extra = given - len(types) if given in (2, 4) else 0
    return types + types[-1:] * max(extra, 0)


def _raw(kind: str, operand: ast.Operand, scope: Scope) -> OperandValue:
    if kind == "sink":
        if isinstance(operand, ast.Name) and operand.text == "_":
            return Sink()
        raise Mismatch("only the sink '_' is legal as the result here", operand.span)
    if not isinstance(operand, ast.Name):
        raise Mismatch(f"a {kind} name is expected here", operand.span)
    entity = scope.find(operand.text)
    wanted = {"label": LabelRef, "targets": LabelTable}[kind]
    if not isinstance(entity, wanted):
        names = [n for n in scope if isinstance(scope.find(n), wanted)]
        raise Mismatch(
            f"unknown label '{operand.text}'"
            if kind == "label"
            else f"unknown list '{operand.text}'",
            operand.span,
            code="PTX110",
            help=did_you_mean(operand.text, names),
        )
    assert isinstance(entity, LabelRef | LabelTable)
    return entity

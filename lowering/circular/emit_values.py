"""Integer expressions as PTX: each value is computed once, outside of the loops it is alike in.

A :class:`Scope` is a block of code that is being written: the kernel, the body of a loop or of a
branch.  What is written into an outer scope stands before the inner one, so that a value may be
computed in any scope in which its symbols are known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd
from typing import TypeAlias

from ptxsim.build import Address, Kernel, Register, Special, Variable
from ptxsim.errors import UsageError

from .integers import Expr, Int, Op, Range, Select, Symbol, bounds, symbols
from .linear import Linear, linear

__all__ = ["SPECIALS", "Scope", "Value", "Values", "multiple"]

Value: TypeAlias = "Register | int"

#: The symbols that are special registers.
SPECIALS = ("tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z")

_MAX = (1 << 31) - 1
_ZERO = Int(0)
_WORDS = {"<": ("lt", "ge", "gt", "le"), "==": ("eq", "ne", "eq", "ne")}


@dataclass
class Scope:
    """A block of code that is being written; ``var`` is the variable of a serial loop."""

    depth: int
    lines: list[str] = field(default_factory=list)
    #: registers by what they hold
    known: dict[Hashable, Register] = field(default_factory=dict)
    var: Symbol | None = None
    start: Expr = Int(0)
    #: the last pointer of each kind, and what it is away from the first, by stride
    pointers: dict[Hashable, tuple[Mapping[Expr, int], Register]] = field(default_factory=dict)
    #: the end of the loop body, where its carried registers move on
    advance: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Named:
    """What a symbol stands for, from some depth on."""

    depth: int
    range: Range
    #: the register, or how to read it
    register: Register | Variable | Special
    #: a number that all its values are multiples of
    multiple: int = 1
    #: whether the register is a predicate
    condition: bool = False


class Values:
    """The integer values of one kernel."""

    def __init__(self, k: Kernel, block: tuple[int, int, int]) -> None:
        self.k = k
        self.scopes = [Scope(0)]
        self._names: dict[str, _Named] = {}
        self._ranges: dict[str, Range] = {}
        for name, extent in zip(SPECIALS, (*block, None, None, None), strict=True):
            if extent == 1:
                continue
            range_: Range = (0, _MAX - 1 if extent is None else extent - 1)
            self._name(name, _Named(0, range_, Special(f"%{name}")))

    # --- names ----------------------------------------------------------------------------------

    def symbol_of(self, register: Register, depth: int) -> Symbol:
        """The symbol of what a register holds in a scope, always the same one."""
        name = f"={register}"
        if name not in self._names:
            self._name(name, _Named(depth, (None, None), register))
        return Symbol(name)

    def _name(self, name: str, named: _Named) -> None:
        self._names[name] = named
        self._ranges[name] = named.range

    def size(self, name: str, parameter: Variable) -> None:
        """Make a size known."""
        self._name(name, _Named(0, (0, _MAX), parameter))

    def define(self, name: str, value: Expr) -> Symbol:
        """A new symbol for a value, which is computed now."""
        register = self.register(value)
        range_, factor = self.bounds(value), self.multiple(value)
        return self.hold(name, register, self.depth(value), range_, factor)

    def condition(self, name: str, value: Expr, tag: str) -> Symbol:
        """A new symbol for a condition, which is tested here."""
        held = self.predicate(value, tag)
        return self.hold(name, held, len(self.scopes) - 1, (0, 1), condition=True)

    def hold(
        self,
        name: str,
        register: Register,
        depth: int,
        range_: Range = (None, None),
        factor: int = 1,
        condition: bool = False,
    ) -> Symbol:
        """A new symbol for what a register holds in a scope."""
        unique = f"{name}.{len(self._names)}"
        self._name(unique, _Named(depth, range_, register, factor, condition))
        return Symbol(unique)

    def address(self, array: Variable) -> Symbol:
        """The symbol of the address of an array in shared memory, as 32 bits."""
        name = f"&{array}"
        if name not in self._names:
            self._name(name, _Named(0, (None, None), array))
        return Symbol(name)

    @contextmanager
    def inside(self, var: Symbol | None = None, start: Expr = _ZERO) -> Iterator[Scope]:
        """Write into a new scope; the caller puts its lines afterwards."""
        scope = Scope(len(self.scopes), var=var, start=start)
        self.scopes.append(scope)
        with self.k.writing(scope.lines):
            yield scope
        self.scopes.pop()

    @contextmanager
    def where(self, guard: Register) -> Iterator[None]:
        """Write a branch: what lanes do for which a predicate is true."""
        with self.inside() as scope:
            yield
        end = self.k.label("SKIP")
        self.k.emit("bra", end, guard=guard, unless=True)
        self.k.append(scope.lines)
        self.k.place(end)

    def once(self, key: Hashable, depth: int, make: Callable[[], Register]) -> Register:
        """What is known under a key in a scope, or made there now."""
        scope = self.scopes[depth]
        if key not in scope.known:
            with self.k.writing(scope.lines):
                scope.known[key] = make()
        return scope.known[key]

    # --- facts ----------------------------------------------------------------------------------

    def bounds(self, e: Expr) -> Range:
        """Bounds of an expression."""
        return bounds(e, self._ranges)

    def _unsigned(self, *parts: Expr) -> bool:
        """Whether values are not negative: as unsigned numbers they are right beyond 2**31 too."""
        lows = [self.bounds(e)[0] for e in parts]
        return all(low is not None and low >= 0 for low in lows)

    def depth(self, e: Expr) -> int:
        """The outermost scope in which all symbols of an expression are known."""
        return max((self._found(name).depth for name in symbols(e)), default=0)

    def loop(self, atom: Expr) -> Scope | None:
        """The serial loop whose variable an atom is."""
        scope = self.scopes[self.depth(atom)]
        return scope if scope.var == atom else None

    def multiple(self, e: Expr) -> int:
        """A number that all values of an expression are multiples of; 0 for those of 0."""
        return multiple(e, {n: x.multiple for n, x in self._names.items() if x.multiple != 1})

    def _found(self, name: str) -> _Named:
        if name not in self._names:
            raise UsageError(f"'{name}' is not known here")
        return self._names[name]

    # --- values ---------------------------------------------------------------------------------

    def value(self, e: Expr) -> Value:
        """A register with the value of an expression, or the number that it is."""
        return self.total(linear(e))

    def register(self, e: Expr) -> Register:
        """A register with the value of an expression."""
        value = self.value(e)
        if isinstance(value, int):
            number = value
            return self.once(
                ("number", number), 0, lambda: self.k.new("mov.u32", "b32", number)
            )  # fmt: skip
        return value

    def total(self, s: Linear) -> Value:
        """A register with a sum, or the number that it is."""
        if not s.terms:
            return s.const
        if s.const == 0 and s.terms[0][1] == 1 and len(s.terms) == 1:
            return self._atom(s.terms[0][0])
        depth = max(self.depth(a) for a, _ in s.terms)
        return self.once(("sum", s.key), depth, lambda: self._sum(s, depth))

    def _sum(self, s: Linear, depth: int) -> Register:
        k = self.k
        if s.const and (len(s.terms) > 1 or s.terms[0][1] == 1):
            return k.new("add.s32", "b32", self._total(Linear(0, s.terms)), s.const)
        if s.const:
            ((atom, factor),) = s.terms
            if factor == -1:
                return k.new("sub.s32", "b32", s.const, self._atom(atom))
            return k.new("mad.lo.s32", "b32", self._atom(atom), factor, s.const)
        outer = s.where(lambda a: self.depth(a) < depth)
        here = [t for t in s.terms if t not in outer.terms]
        less = Linear(0, tuple((a, -f) for a, f in here if f < 0))
        if depth == 0 and 1 < len(less.terms) < len(s.terms):
            # what is subtracted is likely an index that is needed by itself
            return k.new("sub.s32", "b32", self._total(s + less), self._total(less))
        # every sum is one term more than a shorter one, which other sums may begin with
        here.sort(key=lambda t: (t[1] != 1, t[1] < 0))
        atom, factor = here[-1]
        before = (*outer.terms, *here[:-1])
        sum_ = self._total(Linear(0, before)) if before else None
        return self._added(sum_, self._atom(atom), factor)

    def _total(self, s: Linear) -> Register:
        value = self.total(s)
        assert isinstance(value, Register), "a sum with terms is no number"
        return value

    def _added(self, sum_: Register | None, value: Register, factor: int) -> Register:
        k = self.k
        if sum_ is None:
            if factor in (1, -1):
                return value if factor == 1 else k.new("neg.s32", "b32", value)
            if factor > 0 and factor & (factor - 1) == 0:
                return k.new("shl.b32", "b32", value, factor.bit_length() - 1)
            return k.new("mul.lo.s32", "b32", value, factor)
        if factor in (1, -1):
            return k.new("add.s32" if factor == 1 else "sub.s32", "b32", sum_, value)
        return k.new("mad.lo.s32", "b32", value, factor, sum_)

    def _atom(self, atom: Expr) -> Register:
        if isinstance(atom, Symbol):
            return self._symbol(atom)
        depth = self.depth(atom)
        return self.once(atom, depth, lambda: self._computed(atom))

    def _symbol(self, symbol: Symbol) -> Register:
        named = self._found(symbol.name)
        if named.condition:
            held = named.register
            assert isinstance(held, Register)
            return self.once(
                symbol, named.depth, lambda: self.k.new("selp.b32", "b32", 1, 0, held)
            )  # fmt: skip
        if isinstance(named.register, Register):
            return named.register
        if isinstance(named.register, Special):
            special = named.register
            return self.once(symbol, 0, lambda: self.k.new("mov.u32", "b32", special))
        if named.register.space == "shared":
            array = named.register
            return self.once(symbol, 0, lambda: self.k.new("mov.u32", "b32", array))
        address = Address(named.register)
        return self.once(symbol, 0, lambda: self.k.new("ld.param.u32", "b32", address))

    def _computed(self, atom: Expr) -> Register:
        k = self.k
        if isinstance(atom, Select):
            yes, no = self.value(atom.yes), self.value(atom.no)
            return k.new("selp.b32", "b32", yes, no, self.predicate(atom.condition))
        assert isinstance(atom, Op), "sums have no numbers as atoms"
        if atom.name in ("<", "==", "&"):
            return k.new("selp.b32", "b32", 1, 0, self.predicate(atom))
        if atom.name in ("//", "%"):
            return self._divided(atom)
        word = "mul.lo.s32"
        if atom.name != "*":
            word = f"{atom.name}.{'u32' if self._unsigned(atom.left, atom.right) else 's32'}"
        left, right = self.value(atom.left), self.value(atom.right)
        if isinstance(left, int):
            left, right = right, left
        return k.new(word, "b32", left, right)

    # --- quotients and remainders ---------------------------------------------------------------

    def _divided(self, e: Op) -> Register:
        """Towards minus infinity."""
        k, by = self.k, e.right
        if by == Int(0):
            raise UsageError(f"{e} divides by zero")
        unsigned = self._unsigned(e.left, by)
        if isinstance(by, Int) and by.value > 0 and by.value & (by.value - 1) == 0:
            left, shift = self.register(e.left), by.value.bit_length() - 1
            if e.name == "//":
                return k.new("shr.u32" if unsigned else "shr.s32", "b32", left, shift)
            return k.new("and.b32", "b32", left, by.value - 1)
        carried = self._rotated(e)
        if carried is not None:
            return carried
        dividend, divisor = self.register(e.left), self.value(by)
        low, _ = self.bounds(by)
        if unsigned:
            quotient = self.scopes[self.depth(e)].known.get(Op("//", e.left, by))
            if e.name == "%" and quotient is not None:
                whole = k.new("mul.lo.s32", "b32", quotient, divisor)
                return k.new("sub.s32", "b32", dividend, whole)
            return k.new("div.u32" if e.name == "//" else "rem.u32", "b32", dividend, divisor)
        rest = k.new("rem.s32", "b32", dividend, divisor)
        if low is not None and low > 0:
            wrong = k.new("shr.s32", "b32", rest, 31)  # all ones below zero
            if e.name == "%":
                return k.new("add.s32", "b32", rest, k.new("and.b32", "b32", wrong, divisor))
            return k.new("add.s32", "b32", k.new("div.s32", "b32", dividend, divisor), wrong)
        return self._floor(e.name, dividend, divisor, rest)

    def _floor(self, name: str, left: Register, by: Value, rest: Register) -> Register:
        """From the instructions that round towards zero: right unless the signs differ."""
        k = self.k
        off, wrong = k.registers("pred", 2)
        differ = k.new("xor.b32", "b32", rest, by)
        k.emit("setp.ne.s32", off, rest, 0)
        k.emit("setp.lt.and.s32", wrong, differ, 0, off)
        if name == "%":
            k.emit("add.s32", rest, rest, by, guard=wrong)
            return rest
        quotient = k.new("div.s32", "b32", left, by)
        k.emit("sub.s32", quotient, quotient, 1, guard=wrong)
        return quotient

    def _rotated(self, e: Op) -> Register | None:
        """The remainder of a loop variable, which a carried register counts."""
        s = linear(e.left)
        if e.name != "%" or not isinstance(e.right, Int) or e.right.value < 0:
            return None
        if len(s.terms) != 1 or s.terms[0][1] != 1:
            return None
        loop = self.loop(s.terms[0][0])
        if loop is None:
            return None
        k, count = self.k, e.right.value
        first = self.value((loop.start + s.const % count) % count)
        with k.writing(self.scopes[loop.depth - 1].lines):
            slot = k.new("mov.u32", "b32", first)
        with k.writing(loop.advance):
            k.emit("add.s32", slot, slot, 1)
            last = k.new("setp.eq.s32", "pred", slot, count)
            k.emit("selp.b32", slot, 0, slot, last)
        return slot

    # --- conditions -----------------------------------------------------------------------------

    def is_condition(self, e: Expr) -> bool:
        """Whether an expression is 0 or 1 by its form."""
        if isinstance(e, Symbol):
            return self._found(e.name).condition
        return isinstance(e, Op) and e.name in ("<", "==", "&")

    def predicate(self, e: Expr, tag: str = "", former: Register | None = None) -> Register:
        """A predicate, written here, of a condition; and of a former one, if there is one."""
        if isinstance(e, Op) and e.name == "&":
            return self.predicate(e.right, tag, self.predicate(e.left, tag, former))
        if isinstance(e, Symbol) and self.is_condition(e):
            held = self._found(e.name).register
            assert isinstance(held, Register)
            if former is None:
                return held
            return self.k.new("and.pred", "pred", former, held)
        words = self._comparison(e, False)
        if words is None:
            opposite = self.k.new("not.pred", "pred", self._inner(e, tag))
            if former is None:
                return opposite
            return self.k.new("and.pred", "pred", former, opposite)
        word, type_, left, right = words
        if former is None:
            return self.k.new(f"setp.{word}.{type_}", "pred", left, right, tag=tag)
        opcode = f"setp.{word}.and.{type_}"
        return self.k.new(opcode, "pred", left, right, former, tag=tag)

    def _inner(self, e: Expr, tag: str) -> Register:
        assert isinstance(e, Op)
        return self.predicate(e.left, tag)

    def _comparison(self, e: Expr, opposite: bool) -> tuple[str, str, Register, Value] | None:
        """One comparison that gives a condition or its opposite; None for that of several."""
        if isinstance(e, Op) and e.name == "==" and e.right == Int(0):
            if self.is_condition(e.left):
                several = isinstance(e.left, Symbol) or _named(e.left) == "&"
                return None if several else self._comparison(e.left, not opposite)
        if not (isinstance(e, Op) and e.name in _WORDS):
            return "eq" if opposite else "ne", "s32", self.register(e), 0
        type_ = "u32" if self._unsigned(e.left, e.right) else "s32"
        left, right = self.value(e.left), self.value(e.right)
        swapped = isinstance(left, int) and not isinstance(right, int)
        if swapped:
            left, right = right, left
        word = _WORDS[e.name][opposite + 2 * swapped]
        if isinstance(left, int):
            left = self.register(Int(left))
        if e.name == "==":
            type_ = "s32"
        return word, type_, left, right


def _named(e: Expr) -> str:
    return e.name if isinstance(e, Op) else ""


def multiple(e: Expr, known: Mapping[str, int]) -> int:
    """A number that all values of an expression are multiples of; 0 for those of 0.

    >>> multiple(Symbol("i") * 32 + Symbol("n") * 8 - 16, {})
    8
    """
    if isinstance(e, Int):
        return abs(e.value)
    if isinstance(e, Symbol):
        return known.get(e.name, 1)
    if isinstance(e, Select):
        return gcd(multiple(e.yes, known), multiple(e.no, known))
    left, right = multiple(e.left, known), multiple(e.right, known)
    if e.name == "*":
        return left * right
    if e.name in ("+", "-", "min", "max") or (e.name == "%" and isinstance(e.right, Int)):
        return gcd(left, right)
    return 1

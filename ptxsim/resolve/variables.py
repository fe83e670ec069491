"""Declarations of variables, registers and parameters: their types, sizes and places."""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics import Span, did_you_mean
from ..syntax import ast
from ..types import SCALAR_TYPES, ScalarType
from .constants import ConstantError, FloatValue, evaluate
from .declarations import MAX_CONST, reserved_faults, type_faults, variable_faults
from .initializers import initial_bytes
from .scope import Scope, VectorRegister
from .state import MAX_REGISTERS, Area, Body, ModuleState
from .typed import Register, Relocation, Symbol

__all__ = ["Variables"]

#: Bytes of static shared memory, local frame or parameters beyond which a declaration is refused.
_LIMIT = 1 << 31


class Variables:
    """Reads the declarations of one module."""

    def __init__(self, state: ModuleState) -> None:
        self.state = state
        self.log = state.log
        #: the variables of functions that lie in memory of the module, by which they are told apart
        self.static = 0
        self.const_size = 0

    def type_of(self, name: str, span: Span) -> ScalarType:
        """The type that a declaration names."""
        type_ = SCALAR_TYPES.get(name)
        if type_ is None:
            known = [n for n, t in SCALAR_TYPES.items() if t.kind != "a"]
            self.log.error("PTX109", f"unknown type '.{name}'", span, did_you_mean(name, known))
            return SCALAR_TYPES["b32"]
        if type_.kind == "a":
            self.log.error(
                "PTX109",
                f".{name} is an instruction type; declare a .b{type_.bits} variable",
                span,
            )
        return type_

    def count(self, node: ast.Expression, what: str, span: Span) -> int:
        """The value of a constant expression that is a number of things."""
        try:
            value = evaluate(node)
        except ConstantError as error:
            self.log.error("PTX108", error.message, error.span)
            return 1
        if isinstance(value, FloatValue) or not 0 <= value.value < _LIMIT:
            self.log.error("PTX109", f"{what} must be a small positive integer", span)
            return 1
        return value.value

    def _extent(
        self, extents: tuple[ast.Expression | None, ...], span: Span
    ) -> tuple[int | None, bool]:
        """Elements of an array (None for a scalar) and whether the first extent is open."""
        if not extents:
            return None, False
        total = 1
        for extent in extents:
            if extent is not None:
                total *= self.count(extent, "an array extent", span)
        if total >= _LIMIT:
            self.log.error("PTX109", "the array is too large", span)
            total = 1
        return total, extents[0] is None

    def _shape(self, v: ast.Variable) -> tuple[int | None, ...]:
        return tuple(
            None if e is None else self.count(e, "an array extent", v.span) for e in v.extents
        )

    def _alignment(self, node: ast.Expression | None, natural: int, span: Span) -> int:
        if node is None:
            return natural
        align = self.count(node, "an alignment", span)
        if align <= 0 or align & (align - 1):
            self.log.error("PTX109", f".align {align} is not a power of two", node.span)
            return natural
        return align

    def _symbol(self, d: ast.VariableDeclaration, v: ast.Variable, type_: ScalarType) -> Symbol:
        count, open_ = self._extent(v.extents, v.span)
        lanes = d.vector or 1
        size = type_.size * lanes
        natural = size
        data: bytes | None = None
        relocations: tuple[Relocation, ...] = ()
        if v.initializer is not None:
            if d.space not in ("global", "const"):
                self.log.error("PTX109", f"a .{d.space} variable cannot be initialised", v.span)
            elif type_.kind != "o":  # nothing reads how a texture samples
                try:
                    data, relocations, found = initial_bytes(
                        v.initializer, type_, self._shape(v), d.vector or 0, self.state.top
                    )
                    if open_:
                        count = found
                except ConstantError as error:
                    self.log.error("PTX108", error.message, error.span)
        elif open_ and "extern" not in d.linkage:
            self.log.error("PTX109", f"the extent of '{v.name}' is missing", v.span)
        total = size * (1 if count is None else count)
        if open_ and v.initializer is None:
            total = 0
        return Symbol(
            v.name,
            d.space,
            type_,
            total,
            self._alignment(d.align, natural, d.span),
            data=data,
            relocations=relocations,
            external="extern" in d.linkage,
            count=count,
            nested=len(v.extents) > 1,
            span=v.span,
        )

    def _names(self, v: ast.Variable, scope: Scope) -> list[ast.Variable]:
        if v.count is None:
            return [v]
        count = self._range(v, scope)
        return [replace(v, name=f"{v.name}{n}", count=None) for n in range(count)]

    def _range(self, v: ast.Variable, scope: Scope) -> int:
        """How many names ``name<count>`` stands for; it may be none."""
        assert v.count is not None
        scope.declare_range(v.name, v.span, self.log)
        if v.count <= MAX_REGISTERS:
            return v.count
        self.log.error("PTX109", f"'{v.name}<{v.count}>' declares no sensible number", v.span)
        return 0

    def _check(
        self, d: ast.VariableDeclaration, v: ast.Variable, type_: ScalarType, inside: bool
    ) -> None:
        """Report what is wrong with a variable, whatever else is declared."""
        state = self.state
        state.report(variable_faults(d, v, type_, inside, state.independent_textures))
        state.report(type_faults(d.type, bool(v.extents), state.version, state.target, v.span))
        if not inside and v.count is None:
            state.report(reserved_faults(v.name, v.span))

    def of_module(self, d: ast.VariableDeclaration) -> None:
        """Declare variables outside of functions."""
        type_ = self.type_of(d.type, d.span)
        if d.space in ("reg", "local", "param", "sreg"):
            self.log.error("PTX109", f".{d.space} variables are declared inside a function", d.span)
            return
        for v in d.variables:
            self._check(d, v, type_, False)
            for one in self._names(v, self.state.top):
                symbol = self._symbol(d, one, type_)
                if d.space == "shared":
                    symbol = self._place_shared(symbol, self.state.shared)
                elif d.space == "const" and not symbol.external:
                    self._count_constants(symbol)
                known = self.state.top.names.get(symbol.name)
                if isinstance(known, Symbol) and (known.external or symbol.external):
                    self._redeclare(known, symbol, d)
                else:
                    self.state.top.declare(symbol.name, symbol, one.span, self.log)
                if d.space != "shared":
                    self._keep_variable(symbol)

    def _redeclare(self, known: Symbol, symbol: Symbol, d: ast.VariableDeclaration) -> None:
        """One of two declarations of a variable is .extern; they agree (measured)."""
        assert symbol.span is not None
        same = (known.space, known.type) == (symbol.space, symbol.type)
        sizes = {known.size, symbol.size} - {0}
        if not same or len(sizes) > 1:
            self.log.error(
                "PTX112", f"'{symbol.name}' is declared in another way before", symbol.span,
                notes=(("declared here", known.span),),
            )  # fmt: skip
        elif known.external and not symbol.external and not d.linkage:
            self.log.error(
                "PTX112", f"'{symbol.name}' is .extern before and has no linkage here",
                symbol.span, help="define it as .visible", notes=(("declared here", known.span),),
            )  # fmt: skip
        if known.external:
            self.state.top.names[symbol.name] = symbol

    def _count_constants(self, symbol: Symbol) -> None:
        before = self.const_size
        self.const_size = -(-before // symbol.align) * symbol.align + symbol.size
        if before <= MAX_CONST < self.const_size and symbol.span is not None:
            self.log.error(
                "PTX113",
                f"a module has at most {MAX_CONST} bytes of .const variables, with '{symbol.name}'"
                f" it has {self.const_size}",
                symbol.span,
            )

    def _place_shared(self, symbol: Symbol, area: Area) -> Symbol:
        if symbol.size == 0:  # dynamic: lies behind the static part, known at launch
            self.state.dynamic_align = max(self.state.dynamic_align, symbol.align)
            return symbol
        return area.place(symbol)

    def _keep_variable(self, symbol: Symbol) -> None:
        known = self.state.variables.get(symbol.name)
        if known is None or known.external:
            self.state.variables[symbol.name] = symbol

    def of_function(self, d: ast.VariableDeclaration, scope: Scope, body: Body) -> None:
        """Declare registers and variables in a scope of a function."""
        type_ = self.type_of(d.type, d.span)
        for v in d.variables:
            self._check(d, v, type_, True)
            if d.space == "reg":
                self._registers(d, v, type_, scope, body)
                continue
            for one in self._names(v, scope):
                symbol = self._symbol(d, one, type_)
                if d.space in ("local", "param"):
                    symbol = body.frame.place(symbol)
                elif d.space == "shared":
                    symbol = replace(symbol, entry=body.entry)
                    symbol = self._place_shared(
                        symbol, body.shared if body.entry else self.state.shared
                    )
                else:
                    self.static += 1
                    symbol = replace(symbol, name=f"{symbol.name}@{self.static}")
                    self._keep_variable(symbol)
                scope.declare(one.name, symbol, one.span, self.log)

    def _registers(
        self,
        d: ast.VariableDeclaration,
        v: ast.Variable,
        type_: ScalarType,
        scope: Scope,
        body: Body,
    ) -> None:
        """One register, or those of a range ``name<count>``."""
        names = [v.name]
        if v.count is not None:
            names = [f"{v.name}{n}" for n in range(self._range(v, scope))]
        registers = body.registers
        for name in names:
            if len(registers) >= MAX_REGISTERS:
                self.log.error("PTX109", "too many registers in one function", v.span)
                return
            if not d.vector:
                register = Register(name, len(registers), type_)
                registers.append(register)
                scope.declare(name, register, v.span, self.log)
                continue
            first = len(registers)
            elements = [
                Register(f"{name}.{component}", first + n, type_)
                for n, component in enumerate("xyzw"[: d.vector])
            ]
            registers += elements
            scope.declare(name, VectorRegister(name, tuple(elements)), v.span, self.log)

    def parameter(
        self,
        p: ast.Parameter,
        area: Area,
        body: Body,
        scope: Scope | None,
        role: str = "",
    ) -> Symbol | Register:
        """Declare a formal parameter or result; without a scope it is that of a prototype."""
        type_ = self.type_of(p.type, p.span)
        if p.space == "reg":
            register = Register(p.name, len(body.registers), type_)
            body.registers.append(register)
            if scope:
                scope.declare(p.name, register, p.span, self.log)
            return register
        if p.vector:  # it is passed as one value (measured)
            type_ = SCALAR_TYPES.get(f"b{type_.bits * p.vector}", type_)
        count, open_ = self._extent(p.extents, p.span)
        if open_:  # the last parameter of a function, of any number of elements
            count = 0
        size = type_.size * (1 if count is None else count)
        symbol = area.place(
            Symbol(
                p.name,
                "param",
                type_,
                size,
                self._alignment(p.align, type_.size, p.span),
                pointer=p.pointer,
                role=role,
                count=count,
                span=p.span,
            )
        )
        if scope and p.name != "_":
            scope.declare(p.name, symbol, p.span, self.log)
        return symbol

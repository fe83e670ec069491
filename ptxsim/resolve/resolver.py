"""From a syntax tree to a typed module: declarations, scopes, labels and form selection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..diagnostics import Diagnostic, Source, Span, did_you_mean
from ..errors import PtxError
from ..isa.record import STAND_IN, Form, FormMismatch, Instruction, Mods, registry
from ..syntax import ast
from ..targets import PTX_VERSIONS, TARGETS, Floor, Target, parse_target
from ..types import SCALAR_TYPES, ScalarType
from .advice import forms_note, modifier_span, nearest_spelling
from .calls import call_fault
from .constants import ConstantError, FloatValue, evaluate
from .declarations import (
    MAX_CONST,
    MAX_SHARED,
    Fault,
    directive_faults,
    header_faults,
    parameter_faults,
    parameter_limit,
    prototype_fault,
    section_faults,
    variable_faults,
)
from .initializers import initial_bytes
from .operands import CARRY_FLAG, Mismatch, bind_operands
from .rules import broken_rule, operand_floors
from .scope import CallTable, Log, Scope, VectorRegister
from .selectors import detach_selectors
from .typed import (
    AddressOperand,
    CallOperand,
    FunctionRef,
    LabelRef,
    LabelTable,
    OperandValue,
    PrototypeRef,
    Register,
    Relocation,
    Symbol,
    TypedFunction,
    TypedInstruction,
    TypedModule,
)

__all__ = ["CODES", "InstructionChecker", "resolve"]

CODES = {
    "PTX101": "unknown symbol",
    "PTX102": "name declared twice",
    "PTX103": "unknown instruction",
    "PTX104": "illegal or missing modifier",
    "PTX105": "wrong number of operands",
    "PTX106": "operand of the wrong kind or type",
    "PTX107": "needs another PTX ISA version or target",
    "PTX108": "bad constant expression",
    "PTX109": "bad declaration",
    "PTX110": "unknown label",
    "PTX111": "bad call",
    "PTX112": "declarations disagree",
    "PTX113": "limit exceeded",
    "PTX400": "legal PTX that ptxsim does not model",
}

#: Bytes of static shared memory, local frame or parameters beyond which a declaration is refused.
_LIMIT = 1 << 31

_MAX_REGISTERS = 1 << 17


@dataclass
class _Area:
    """A memory area that is laid out front to back."""

    size: int = 0
    align: int = 1

    def place(self, symbol: Symbol) -> Symbol:
        offset = -(-self.size // symbol.align) * symbol.align
        self.size = offset + symbol.size
        self.align = max(self.align, symbol.align)
        return replace(symbol, offset=offset)


@dataclass
class _Body:
    """State while the body of one function is read."""

    registers: list[Register] = field(default_factory=list)
    frame: _Area = field(default_factory=_Area)
    #: the name of the entry, empty for a function, whose shared variables all entries share
    entry: str = ""
    shared: _Area = field(default_factory=_Area)
    instructions: list[TypedInstruction] = field(default_factory=list)
    unsupported: dict[int, Diagnostic] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    #: the function's own parameters and results; other .param variables are those of calls
    own: tuple[object, ...] = ()

    def of_a_call(self, address: object) -> bool:
        """Whether an address is that of a parameter or result of a call."""
        if not isinstance(address, AddressOperand) or not isinstance(address.base, Symbol):
            return False
        symbol = address.base
        return symbol.space == "param" and all(symbol is not own for own in self.own)


def resolve(module: ast.Module, source: Source, target: str | None = None) -> TypedModule:
    """Type a module.  Errors and ``unsupported`` notes are in ``diagnostics`` of the result.

    ``target`` replaces the one of the ``.target`` directive.
    """
    return _Resolver(source, target).run(module)


class _Resolver:
    def __init__(self, source: Source, target: str | None) -> None:
        self.source = source
        self.log = Log()
        self.unsupported: list[Diagnostic] = []
        self.wanted_target = target
        self.version = (1, 0)
        self.version_span = self.target_span = Span(1, 1, 1, 1)
        self.target = Target(20)
        self.target_options: tuple[str, ...] = ()
        self.address_size = 32
        self.top = Scope()
        self.shared = _Area()
        self.dynamic_align = 16
        self.functions: dict[str, TypedFunction] = {}
        self.aliases: dict[str, str] = {}
        self.variables: dict[str, Symbol] = {}
        self.known: dict[tuple[str, ...], list[tuple[Instruction, Form, Mods]]] = {}
        self.static = 0
        self.const_size = 0
        self.locations: set[tuple[int, int, int]] = set()
        #: the linkage of functions where they were declared first
        self.linkage: dict[str, tuple[str, ...]] = {}

    # --- module ---------------------------------------------------------------------------------

    def run(self, module: ast.Module) -> TypedModule:
        self._header(module)
        for item in module.items:
            match item:
                case ast.VariableDeclaration():
                    self._module_variables(item)
                case ast.Function():
                    self._function(item)
                case ast.AliasDirective():
                    self._alias(item)
                case ast.Section():
                    self._report(section_faults(item))
        return TypedModule(
            self.source,
            self.version,
            self.target,
            self.address_size,
            self.functions,
            self.aliases,
            self.variables,
            self.shared.size,
            self.dynamic_align,
            tuple(sorted(self.log.items, key=_place) + self.unsupported),
        )

    def _report(self, faults: Iterable[Fault]) -> None:
        for f in faults:
            self.log.error(f.code, f.message, f.span, f.help)

    def _alias(self, item: ast.AliasDirective) -> None:
        """An alias is declared as a function without a body; its target is a function."""
        for name in (item.name, item.target):
            if name not in self.functions:
                hint = did_you_mean(name, self.functions)
                self.log.error("PTX101", f"unknown function '{name}'", item.span, hint)
                return
        if self.functions[item.name].instructions is not None:
            self.log.error("PTX102", f"'{item.name}' has a body and is no alias", item.span)
            return
        self.aliases[item.name] = item.target

    def _header(self, module: ast.Module) -> None:
        first = module.items[0] if module.items else None
        if not isinstance(first, ast.VersionDirective):
            self.log.error("PTX109", "a module begins with a .version directive", module.span)
            return
        self.version = (first.major, first.minor)
        self.version_span = first.span
        if self.version not in PTX_VERSIONS:
            self.log.error(
                "PTX107", f"PTX ISA version {first.major}.{first.minor} does not exist", first.span
            )
        directives = [i for i in module.items if isinstance(i, ast.TargetDirective)]
        if not directives:
            self.log.error("PTX109", "a .target directive is missing", first.span)
        for directive in directives:
            self._target(directive)
        sizes = [i for i in module.items if isinstance(i, ast.AddressSizeDirective)]
        for size in sizes:
            if size.size not in (32, 64):
                self.log.error("PTX109", ".address_size is 32 or 64", size.span)
        self.address_size = sizes[0].size if sizes else 32
        self._report(
            header_faults(
                module, self.target_options, self.target, self.address_size, self.target_span
            )
        )
        repeated = [i for i in module.items[1:] if isinstance(i, ast.VersionDirective)]
        for span in [d.span for d in repeated] + [d.span for d in sizes[1:]]:
            self.log.error("PTX109", "this directive may occur only once", span)

    def _target(self, item: ast.TargetDirective) -> None:
        self.target_span = item.span
        names = [t for t in item.targets if t.startswith(("sm_", "compute_"))]
        self.target_options = tuple(t for t in item.targets if t not in names)
        for option in self.target_options:
            known = ("texmode_unified", "texmode_independent", "debug", "map_f64_to_f32")
            if option not in known:
                self.log.error(
                    "PTX109", f"unknown .target option '{option}'", item.span,
                    did_you_mean(option, (*known, *TARGETS)),
                )  # fmt: skip
        if not names:
            self.log.error("PTX109", "the .target directive names no target", item.span)
            return
        text = self.wanted_target or names[0]
        target = parse_target(text.replace("compute_", "sm_"))
        if target is None:
            self.log.error(
                "PTX107", f"unknown target '{text}'", item.span, did_you_mean(text, TARGETS)
            )
            return
        self.target = target
        since = TARGETS[str(target)]
        if self.version < since and not self.wanted_target:
            self.log.error(
                "PTX107",
                f"target {text} needs PTX ISA version {since[0]}.{since[1]} or later",
                item.span,
                notes=(("the version is set here", self.version_span),),
            )

    # --- declarations ---------------------------------------------------------------------------

    def _type(self, name: str, span: Span) -> ScalarType:
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

    def _count(self, node: ast.Expression, what: str, span: Span) -> int:
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
                total *= self._count(extent, "an array extent", span)
        if total >= _LIMIT:
            self.log.error("PTX109", "the array is too large", span)
            total = 1
        return total, extents[0] is None

    def _shape(self, v: ast.Variable) -> tuple[int | None, ...]:
        return tuple(
            None if e is None else self._count(e, "an array extent", v.span) for e in v.extents
        )

    def _alignment(self, node: ast.Expression | None, natural: int, span: Span) -> int:
        if node is None:
            return natural
        align = self._count(node, "an alignment", span)
        if align <= 0 or align & (align - 1):
            self.log.error("PTX109", f".align {align} is not a power of two", span)
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
                        v.initializer, type_, self._shape(v), d.vector or 0, self.top
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
            span=v.span,
        )

    def _names(self, v: ast.Variable) -> list[ast.Variable]:
        if v.count is None:
            return [v]
        if not 0 < v.count <= _MAX_REGISTERS:
            self.log.error("PTX109", f"'{v.name}<{v.count}>' declares no sensible number", v.span)
            return []
        return [replace(v, name=f"{v.name}{n}", count=None) for n in range(v.count)]

    def _module_variables(self, d: ast.VariableDeclaration) -> None:
        type_ = self._type(d.type, d.span)
        if d.space in ("reg", "local", "param", "sreg"):
            self.log.error("PTX109", f".{d.space} variables are declared inside a function", d.span)
            return
        independent = "texmode_independent" in self.target_options
        for v in d.variables:
            self._report(variable_faults(d, v, type_, False, independent))
            for one in self._names(v):
                symbol = self._symbol(d, one, type_)
                if d.space == "shared":
                    symbol = self._place_shared(symbol, self.shared)
                elif d.space == "const" and not symbol.external:
                    self._count_constants(symbol)
                known = self.top.names.get(symbol.name)
                if isinstance(known, Symbol) and (known.external or symbol.external):
                    self._redeclare(known, symbol, d)
                else:
                    self.top.declare(symbol.name, symbol, one.span, self.log)
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
            self.top.names[symbol.name] = symbol

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

    def _place_shared(self, symbol: Symbol, area: _Area) -> Symbol:
        if symbol.size == 0:  # dynamic: lies behind the static part, known at launch
            self.dynamic_align = max(self.dynamic_align, symbol.align)
            return symbol
        return area.place(symbol)

    def _keep_variable(self, symbol: Symbol) -> None:
        known = self.variables.get(symbol.name)
        if known is None or known.external:
            self.variables[symbol.name] = symbol

    # --- functions ------------------------------------------------------------------------------

    def _parameter(
        self,
        p: ast.Parameter,
        area: _Area,
        body: _Body,
        scope: Scope | None,
        input: bool = False,
    ) -> Symbol | Register:
        type_ = self._type(p.type, p.span)
        if p.space == "reg":
            register = Register(p.name, len(body.registers), type_)
            body.registers.append(register)
            if scope:
                scope.declare(p.name, register, p.span, self.log)
            return register
        count, open_ = self._extent(p.extents, p.span)
        if open_:  # the last parameter of a function, of any number of elements
            count = 0
        size = type_.size * (p.vector or 1) * (1 if count is None else count)
        symbol = area.place(
            Symbol(
                p.name,
                "param",
                type_,
                size,
                self._alignment(p.align, type_.size * (p.vector or 1), p.span),
                pointer=p.pointer,
                input=input,
                count=count,
                span=p.span,
            )
        )
        if scope and p.name != "_":
            scope.declare(p.name, symbol, p.span, self.log)
        return symbol

    def _function(self, node: ast.Function) -> None:
        scope = Scope(self.top)
        body = _Body(entry=node.name if node.kind == "entry" else "")
        flag = Register(CARRY_FLAG, 0, SCALAR_TYPES["pred"])
        body.registers.append(flag)
        scope.names[CARRY_FLAG] = flag
        area = _Area() if node.kind == "entry" else body.frame
        results = tuple(self._parameter(p, area, body, scope) for p in node.results)
        parameters = tuple(
            self._parameter(p, area, body, scope, input=True) for p in node.parameters
        )
        body.own = (*results, *parameters)
        independent = "texmode_independent" in self.target_options
        self._report(parameter_faults(node, independent))
        limit = parameter_limit(self.version)
        if node.kind == "entry" and area.size > limit:
            more = "" if limit > 4352 else ", 32764 from PTX ISA 8.1 on"
            self.log.error(
                "PTX113",
                f"the parameters of an .entry have at most {limit} bytes{more}: these have"
                f" {area.size}",
                node.name_span,
            )
        directives = {}
        for d in node.directives:
            values = [v for v in d.values if not isinstance(v, str)]
            directives[d.name] = tuple(self._count(v, "a value", d.span) for v in values)
        self._report(directive_faults(node, directives, self.version, self.target))
        known = self.functions.get(node.name)
        if known is None:
            self.linkage[node.name] = node.linkage
            ref = FunctionRef(node.name, node.kind == "entry")
            self.top.declare(node.name, ref, node.name_span, self.log)
        elif known.instructions is not None and node.body is not None:
            self.log.error("PTX102", f"'{node.name}' already has a body", node.name_span)
        function = TypedFunction(
            node.name, node.kind, results, parameters, (), None, {}, 0, area.size, directives,
            node.name_span,
        )  # fmt: skip
        if known is not None:
            self._same_function(known, function, node)
        if node.body is None:
            if known is None:
                self.functions[node.name] = function
            return
        self.functions.setdefault(node.name, function)
        self._collect_labels(node.body, scope)
        self._statements(node.body, scope, body)
        if node.kind == "entry":
            self._shared_limit(node, body)
        instructions = tuple(_with_labels(i, body.labels) for i in body.instructions)
        self.functions[node.name] = replace(
            function,
            registers=tuple(body.registers),
            instructions=instructions,
            labels=dict(body.labels),
            frame_size=body.frame.size,
            shared_size=body.shared.size,
            shared_align=body.shared.align,
            unsupported=body.unsupported,
        )

    def _same_function(
        self, known: TypedFunction, function: TypedFunction, node: ast.Function
    ) -> None:
        """All declarations of a function agree; only the first may add linkage (measured)."""
        why = prototype_fault(known, function)
        first = self.linkage.get(node.name, ())
        added = [word for word in node.linkage if word not in first]
        if why is None and "extern" in first and "extern" not in node.linkage:
            why = "it is .extern where it is declared first"
        elif why is None and added:
            why = f"it is .{added[0]} here, but not where it is declared first"
        if why is not None:
            self.log.error(
                "PTX112", f"'{node.name}' is declared in two ways: {why}", node.name_span,
                notes=(("declared here", known.span),),
            )  # fmt: skip

    def _shared_limit(self, node: ast.Function, body: _Body) -> None:
        """The static shared memory that an entry uses; what nothing names takes no place."""
        if body.shared.size + self.shared.size <= MAX_SHARED:
            return
        used: dict[str, int] = {}
        for i in body.instructions:
            for value in i.operands.values():
                for part in (getattr(value, "base", None), getattr(value, "symbol", None)):
                    if isinstance(part, Symbol) and part.space == "shared":
                        used[part.name] = part.size
        size = sum(used.values())
        if size > MAX_SHARED:
            self.log.error(
                "PTX113",
                f"'{node.name}' has {size} bytes of static shared memory, a CTA has {MAX_SHARED}",
                node.name_span,
                help="declare '.extern .shared' and give the size at launch for more",
            )

    def _collect_labels(self, statements: tuple[ast.Statement, ...], scope: Scope) -> None:
        """Labels may be used before they stand; their places are filled in afterwards."""
        for s in statements:
            if isinstance(s, ast.Label):
                scope.declare(s.name, LabelRef(_label_key(s), -1), s.span, self.log)

    def _statements(self, statements: tuple[ast.Statement, ...], scope: Scope, body: _Body) -> None:
        for s in statements:
            match s:
                case ast.Instruction():
                    self._instruction(s, scope, body)
                case ast.Label():
                    body.labels[_label_key(s)] = len(body.instructions)
                case ast.Block(inner):
                    nested = Scope(scope)
                    self._collect_labels(inner, nested)
                    self._statements(inner, nested, body)
                case ast.VariableDeclaration():
                    self._local_variables(s, scope, body)
                case ast.BranchTargets():
                    self._branch_targets(s, scope)
                case ast.LocDirective():
                    self._location(s)
                case ast.CallTargets():
                    self._call_targets(s)
                    scope.declare(s.name, CallTable(s.name, s.targets), s.span, self.log)
                case ast.Prototype():
                    table = self._prototype(s)
                    scope.declare(s.label, table, s.span, self.log)

    def _call_targets(self, s: ast.CallTargets) -> None:
        for name in s.targets:
            if name not in self.functions and name not in self.aliases:
                hint = did_you_mean(name, self.functions)
                self.log.error("PTX101", f"unknown function '{name}'", s.span, hint)

    def _location(self, s: ast.LocDirective) -> None:
        """An inlined place is one that an earlier .loc has named (measured)."""
        if s.inlined_at is not None and s.inlined_at not in self.locations:
            place = " ".join(map(str, s.inlined_at))
            self.log.error("PTX109", f"no .loc before this one names the place {place}", s.span)
        self.locations.add((s.file, s.line, s.column))

    def _prototype(self, s: ast.Prototype) -> PrototypeRef:
        area, body = _Area(), _Body()
        results, parameters = (
            tuple(self._parameter(p, area, body, None) for p in ps)
            for ps in (s.results, s.parameters)
        )
        return PrototypeRef(s.label, results, parameters)

    def _branch_targets(self, s: ast.BranchTargets, scope: Scope) -> None:
        targets: list[LabelRef] = []
        for text in s.targets:
            names = [text]
            if text.endswith(">") and "<" in text:
                stem, _, count = text[:-1].partition("<")
                names = [f"{stem}{n}" for n in range(min(int(count), _MAX_REGISTERS))]
            for name in names:
                entity = scope.find(name)
                if isinstance(entity, LabelRef):
                    targets.append(entity)
                else:
                    known = [n for n in scope if isinstance(scope.find(n), LabelRef)]
                    self.log.error(
                        "PTX110", f"unknown label '{name}'", s.span, did_you_mean(name, known)
                    )
                    break  # of a range, which may be long, the first is enough
        scope.declare(s.name, LabelTable(s.name, tuple(targets)), s.span, self.log)

    def _local_variables(self, d: ast.VariableDeclaration, scope: Scope, body: _Body) -> None:
        type_ = self._type(d.type, d.span)
        independent = "texmode_independent" in self.target_options
        for v in d.variables:
            self._report(variable_faults(d, v, type_, True, independent))
            for one in self._names(v):
                if d.space == "reg":
                    self._register(d, one, type_, scope, body)
                    continue
                symbol = self._symbol(d, one, type_)
                if d.space in ("local", "param"):
                    symbol = body.frame.place(symbol)
                elif d.space == "shared":
                    symbol = replace(symbol, entry=body.entry)
                    symbol = self._place_shared(symbol, body.shared if body.entry else self.shared)
                else:
                    self.static += 1
                    symbol = replace(symbol, name=f"{symbol.name}@{self.static}")
                    self._keep_variable(symbol)
                scope.declare(one.name, symbol, one.span, self.log)

    def _register(
        self,
        d: ast.VariableDeclaration,
        v: ast.Variable,
        type_: ScalarType,
        scope: Scope,
        body: _Body,
    ) -> None:
        if len(body.registers) >= _MAX_REGISTERS:
            self.log.error("PTX109", "too many registers in one function", v.span)
            return
        if d.vector:
            elements = []
            for component in "xyzw"[: d.vector]:
                register = Register(f"{v.name}.{component}", len(body.registers), type_)
                body.registers.append(register)
                elements.append(register)
            scope.declare(v.name, VectorRegister(v.name, tuple(elements)), v.span, self.log)
            return
        register = Register(v.name, len(body.registers), type_)
        body.registers.append(register)
        scope.declare(v.name, register, v.span, self.log)

    # --- instructions ---------------------------------------------------------------------------

    def _instruction(self, node: ast.Instruction, scope: Scope, body: _Body) -> None:
        guard: Register | None = None
        if node.guard is not None:
            entity = scope.find(node.guard.register)
            if isinstance(entity, Register) and entity.type.kind == "p":
                guard = entity
            elif entity is None:
                scope.unknown(node.guard.register, node.guard.span, self.log, "predicate")
            else:
                self.log.error(
                    "PTX106", f"the guard '{node.guard.register}' is not a .pred register",
                    node.guard.span,
                )  # fmt: skip
        chosen = self._choose(node, scope, body)
        if chosen is None:
            return
        record, form, m, operands = chosen
        call = operands.get("call")
        if isinstance(call, CallOperand):
            fault = call_fault(call, self.functions, self.aliases)
            if fault is not None:
                notes = (("declared here", fault[1]),) if fault[1] else ()
                self.log.error("PTX111", fault[0], node.span, notes=notes)
                return
        if guard is not None and body.of_a_call(operands.get("a")):
            self.log.error(
                "PTX111", f"'{record.name}' of a parameter of a call cannot have a guard", node.span
            )
            return
        body.instructions.append(
            TypedInstruction(
                record,
                form,
                m,
                operands,
                guard,
                bool(node.guard and node.guard.negated),
                ".".join(node.opcode),
                node.span,
                node.opcode_span,
            )
        )

    def _candidates(self, node: ast.Instruction) -> list[tuple[Instruction, Form, Mods]] | None:
        """All forms whose modifiers fit, with a message for the best miss if there is none."""
        opcode = node.opcode
        if opcode in self.known:
            return self.known[opcode]
        opcode = registry.canonical(opcode)
        name = registry.mnemonic(opcode)
        if name is None:
            names = registry.names()
            family = any(known.startswith(f"{opcode[0]}.") for known in names)
            text = ".".join(opcode[: 1 + family])
            self.log.error(
                "PTX103", f"unknown instruction '{text}'", node.opcode_span,
                did_you_mean(".".join(opcode[:2]), names) or did_you_mean(opcode[0], names),
            )  # fmt: skip
            return None
        words = opcode[name.count(".") + 1 :]
        found: list[tuple[Instruction, Form, Mods]] = []
        best: FormMismatch | None = None
        for record in registry[name]:
            for form in record.forms:
                try:
                    m = form.match(words)
                except FormMismatch as error:
                    if best is None or error.score > best.score:
                        best = error
                    continue
                reason = record.check(m)
                if reason is None:
                    found.append((record, form, m))
                else:
                    best = FormMismatch(reason, 99)
        if not found:
            assert best is not None
            spelling = nearest_spelling(name, words)
            self.log.error(
                "PTX104",
                f"{name}: {best}",
                modifier_span(self.source, node.opcode_span, node.opcode, best.word),
                f"did you mean '{spelling}'?" if spelling else None,
                notes=((forms_note(name, words, None), None),),
            )
            return None
        self.known[node.opcode] = found
        return found

    def _choose(self, node: ast.Instruction, scope: Scope, body: _Body):  # type: ignore[no-untyped-def]
        candidates = self._candidates(node)
        if candidates is None:
            return None
        best: Mismatch | None = None
        floor_problem = None
        for record, form, words in candidates:
            m, plain = detach_selectors(form, words, node)
            try:
                operands = bind_operands(record, form, m, plain, scope)
            except Mismatch as error:
                if best is None or error.score > best.score:
                    best = error
                continue
            independent = "texmode_independent" in self.target_options
            problem = self._floor(record, form, m) or self._unmet(
                record, operand_floors(form, operands, independent)
            )
            if problem is not None:
                floor_problem = floor_problem or problem
                continue
            broken = broken_rule(record, form, m, operands)
            if broken is not None:
                best = Mismatch(f"operand {broken[0]}: {broken[1]}", node.span, len(operands))
                continue
            if form.unsupported:
                return self._not_modelled(node, body, form.unsupported)
            return record, form, m, operands
        if floor_problem is not None:
            what, needs = floor_problem
            self.log.error(
                "PTX107",
                f"{what} needs {needs}; this module has PTX ISA version"
                f" {self.version[0]}.{self.version[1]} and target {self.target}",
                node.opcode_span,
                notes=(
                    ("the target is set here", self.target_span),
                    ("the PTX ISA version is set here", self.version_span),
                ),
            )
            return None
        assert best is not None
        text = best.message if best.code == "PTX105" else f"{'.'.join(node.opcode)}: {best.message}"
        forms: tuple[tuple[str, Span | None], ...] = ()
        if best.code in ("PTX105", "PTX106"):
            record, _, m = candidates[0]
            given = [word for word in m.values() if word]
            forms = ((forms_note(record.name, given, len(node.operands)), None),)
        self.log.error(best.code, text, best.span, best.help, forms)
        return None

    def _floor(self, record: Instruction, form: Form, m: Mods) -> tuple[str, str] | None:
        checks = [("", record.floor), *form.floors(m)]
        combined = record.combined_floor(m)
        if combined is not None:
            checks.append(combined)
        return self._unmet(record, ((f".{word}" if word else "", f) for word, f in checks))

    def _unmet(
        self, record: Instruction, floors: Iterable[tuple[str, Floor]]
    ) -> tuple[str, str] | None:
        """The first floor that version and target do not meet: what has it, and what it needs."""
        for what, floor in floors:
            needs = floor.unmet(self.version, self.target)
            if needs:
                return (f"'{record.name}'" if not what else f"'{record.name}' with {what}"), needs
        return None

    def _not_modelled(self, node: ast.Instruction, body: _Body, reason: str) -> None:
        d = Diagnostic("PTX400", reason, node.opcode_span)
        self.unsupported.append(d)
        body.unsupported[len(body.instructions)] = d
        record = registry[STAND_IN][0]
        form = record.forms[0]
        body.instructions.append(
            TypedInstruction(
                record, form, Mods({}), {}, None, False, ".".join(node.opcode), node.span,
                node.opcode_span,
            )
        )  # fmt: skip
        return


def _place(d: Diagnostic) -> tuple[int, int]:
    return d.span.line, d.span.column


def _label_key(label: ast.Label) -> str:
    """Labels of different scopes may share a name; their place makes them distinct."""
    return f"{label.name}@{label.span.line}:{label.span.column}"


def _with_labels(i: TypedInstruction, labels: dict[str, int]) -> TypedInstruction:
    changed: dict[str, OperandValue] = {}
    for name, value in i.operands.items():
        if isinstance(value, LabelRef):
            changed[name] = LabelRef(value.name.split("@")[0], labels[value.name])
        elif isinstance(value, LabelTable):
            refs = tuple(LabelRef(t.name.split("@")[0], labels[t.name]) for t in value.targets)
            changed[name] = LabelTable(value.name, refs)
    return replace(i, operands={**i.operands, **changed}) if changed else i


class InstructionChecker:
    """Checks instructions one by one, as a builder writes them into one function.

    Names are declared first; :meth:`check` raises :class:`ptxsim.PtxError` for what the assembler
    would refuse.
    """

    def __init__(self, version: tuple[int, int], target: Target, address_size: int) -> None:
        resolver = _Resolver(Source("<build>", ""), None)
        resolver.version, resolver.target = version, target
        resolver.address_size = address_size
        self._resolver = resolver
        self._scope = Scope(resolver.top)
        self._body = _Body(entry="<build>")
        flag = Register(CARRY_FLAG, 0, SCALAR_TYPES["pred"])
        self._body.registers.append(flag)
        self._scope.names[CARRY_FLAG] = flag

    def register(self, name: str, type_: str) -> None:
        """Declare a register."""
        register = Register(name, len(self._body.registers), SCALAR_TYPES[type_])
        self._body.registers.append(register)
        self._scope.names[name] = register

    def variable(self, name: str, space: str, type_: str, count: int, align: int) -> None:
        """Declare a variable or parameter; ``count`` 0 is an array of unknown extent."""
        scalar = SCALAR_TYPES[type_]
        symbol = Symbol(name, space, scalar, scalar.size * count, align)
        self._scope.names[name] = symbol
        self._body.own = (*self._body.own, symbol)

    def label(self, name: str) -> None:
        """Declare a label."""
        self._scope.names[name] = LabelRef(name, -1)

    def check(self, node: ast.Instruction, text: str) -> None:
        """Refuse an instruction that is not legal here; ``text`` is quoted in the messages."""
        self._resolver._instruction(node, self._scope, self._body)
        found, self._resolver.log.items = self._resolver.log.items, []
        if found:
            raise PtxError(found, Source("<build>", text))

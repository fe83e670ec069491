"""Functions and entries: parameters, scopes, labels, and the tables of branches and calls."""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics import did_you_mean
from ..syntax import ast
from ..types import SCALAR_TYPES
from .declarations import (
    MAX_SHARED,
    directive_faults,
    parameter_faults,
    parameter_limit,
    prototype_fault,
    prototype_faults,
    reserved_faults,
    type_faults,
)
from .instructions import Instructions
from .operands import CARRY_FLAG
from .scope import CallTable, Scope
from .state import MAX_REGISTERS, Area, Body, ModuleState
from .typed import (
    FunctionRef,
    LabelRef,
    LabelTable,
    OperandValue,
    PrototypeRef,
    Register,
    Symbol,
    TypedFunction,
    TypedInstruction,
)
from .variables import Variables

__all__ = ["Functions"]


class Functions:
    """Reads the functions and entries of one module."""

    def __init__(self, state: ModuleState, variables: Variables) -> None:
        self.state = state
        self.log = state.log
        self.variables = variables
        self.instructions = Instructions(state)
        self.locations: set[tuple[int, int, int]] = set()

    def read(self, node: ast.Function) -> None:
        """Type a function or entry, or take note of its prototype."""
        scope = Scope(self.state.top)
        body = Body(entry=node.name if node.kind == "entry" else "")
        flag = Register(CARRY_FLAG, 0, SCALAR_TYPES["pred"])
        body.registers.append(flag)
        scope.names[CARRY_FLAG] = flag
        function = self._head(node, scope, body)
        known = self.state.functions.get(node.name)
        if known is None:
            self.state.report(reserved_faults(node.name, node.name_span))
            self.state.linkage[node.name] = node.linkage
            ref = FunctionRef(node.name, node.kind == "entry")
            self.state.top.declare(node.name, ref, node.name_span, self.log)
            self.state.functions[node.name] = function
        else:
            if known.instructions is not None and node.body is not None:
                self.log.error("PTX102", f"'{node.name}' already has a body", node.name_span)
            self._same_function(known, function, node)
        if node.body is not None:
            self.state.functions[node.name] = self._with_body(function, node, scope, body)

    def _head(self, node: ast.Function, scope: Scope, body: Body) -> TypedFunction:
        """Parameters, results and directives."""
        area = Area() if node.kind == "entry" else body.frame
        results, parameters = (
            tuple(self.variables.parameter(p, area, body, scope, role) for p in formals)
            for formals, role in ((node.results, "result"), (node.parameters, "input"))
        )
        self.state.report(parameter_faults(node, self.state.independent_textures))
        if node.body is not None:
            self._definition(node)
        limit = parameter_limit(self.state.version, self.state.target)
        if node.kind == "entry" and area.size > limit:
            more = "" if limit > 4352 else ", 32764 from PTX ISA 8.1 and sm_70 on"
            self.log.error(
                "PTX113",
                f"the parameters of an .entry have at most {limit} bytes{more}: these have"
                f" {area.size}",
                node.name_span,
            )
        directives = self._values(node.directives)
        self.state.report(directive_faults(node, directives, self.state.version, self.state.target))
        return TypedFunction(
            node.name, node.kind, results, parameters, (), None, {}, 0, area.size, directives,
            node.name_span,
        )  # fmt: skip

    def _definition(self, node: ast.Function) -> None:
        """What a function with a body has beyond one that is only declared (measured)."""
        if "extern" in node.linkage:
            self.log.error("PTX109", f"'{node.name}' is .extern and has a body", node.name_span)
        for p in node.results + node.parameters:
            version, target = self.state.version, self.state.target
            self.state.report(type_faults(p.type, bool(p.extents), version, target, p.span))

    def _values(self, directives: tuple[ast.FunctionDirective, ...]) -> dict[str, tuple[int, ...]]:
        """The values of directives by their names."""
        values: dict[str, tuple[int, ...]] = {}
        for d in directives:
            given = [v for v in d.values if not isinstance(v, str)]
            values[d.name] = tuple(self.variables.count(v, "a value", d.span) for v in given)
        return values

    def _with_body(
        self, function: TypedFunction, node: ast.Function, scope: Scope, body: Body
    ) -> TypedFunction:
        assert node.body is not None
        self._collect_labels(node.body, scope)
        self._statements(node.body, scope, body)
        if node.kind == "entry":
            self._shared_limit(node, body)
        return replace(
            function,
            registers=tuple(body.registers),
            instructions=tuple(_with_labels(i, body.labels) for i in body.instructions),
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
        first = self.state.linkage.get(node.name, ())
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

    def _shared_limit(self, node: ast.Function, body: Body) -> None:
        """The static shared memory that an entry uses; what nothing names takes no place."""
        if body.shared.size + self.state.shared.size <= MAX_SHARED:
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

    def _statements(self, statements: tuple[ast.Statement, ...], scope: Scope, body: Body) -> None:
        for s in statements:
            match s:
                case ast.Instruction():
                    self.instructions.add(s, scope, body)
                case ast.Label():
                    body.labels[_label_key(s)] = len(body.instructions)
                case ast.Block(inner):
                    nested = Scope(scope)
                    self._collect_labels(inner, nested)
                    self._statements(inner, nested, body)
                case ast.VariableDeclaration():
                    self.variables.of_function(s, scope, body)
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
            if name not in self.state.functions and name not in self.state.aliases:
                hint = did_you_mean(name, self.state.functions)
                self.log.error("PTX101", f"unknown function '{name}'", s.span, hint)

    def _location(self, s: ast.LocDirective) -> None:
        """An inlined place is one that an earlier .loc has named (measured)."""
        if s.inlined_at is not None and s.inlined_at not in self.locations:
            place = " ".join(map(str, s.inlined_at))
            self.log.error("PTX109", f"no .loc before this one names the place {place}", s.span)
        self.locations.add((s.file, s.line, s.column))

    def _prototype(self, s: ast.Prototype) -> PrototypeRef:
        area, body = Area(), Body()
        results, parameters = (
            tuple(self.variables.parameter(p, area, body, None) for p in ps)
            for ps in (s.results, s.parameters)
        )
        values = self._values(s.directives)
        self.state.report(prototype_faults(s, values, self.state.version, self.state.target))
        return PrototypeRef(s.label, results, parameters)

    def _branch_targets(self, s: ast.BranchTargets, scope: Scope) -> None:
        targets: list[LabelRef] = []
        for text in s.targets:
            names = [text]
            if text.endswith(">") and "<" in text:
                stem, _, count = text[:-1].partition("<")
                names = [f"{stem}{n}" for n in range(min(int(count), MAX_REGISTERS))]
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


def _label_key(label: ast.Label) -> str:
    """Labels of different scopes may share a name; their place makes them distinct."""
    return f"{label.name}@{label.span.line}:{label.span.column}"


def _with_labels(i: TypedInstruction, labels: dict[str, int]) -> TypedInstruction:
    if not i.record.control:
        return i
    changed: dict[str, OperandValue] = {}
    for name, value in i.operands.items():
        if isinstance(value, LabelRef):
            changed[name] = LabelRef(value.name.split("@")[0], labels[value.name])
        elif isinstance(value, LabelTable):
            refs = tuple(LabelRef(t.name.split("@")[0], labels[t.name]) for t in value.targets)
            changed[name] = LabelTable(value.name, refs)
    return replace(i, operands={**i.operands, **changed}) if changed else i

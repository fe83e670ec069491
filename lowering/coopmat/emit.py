"""Kernels of cooperative matrices as PTX: frame, statements, and the traps before each access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxsim.build import Address, Label, Register, Special
from ptxsim.build import Kernel as Text

from .check import DeclaredNames, accessed_buffers, operand_layouts
from .facts import Launch
from .forms import layout_suffix
from .ir import (
    ELEMENTS,
    Assign,
    Barrier,
    Block,
    Constant,
    Expression,
    For,
    FragmentDecl,
    FragmentLoad,
    FragmentStore,
    If,
    Intrinsic,
    Kernel,
    Length,
    Let,
    Local,
    MulAdd,
    Param,
    Return,
    Shared,
    Statement,
    Store,
    Var,
    While,
)
from .preconditions import SHARED_ALIGN, Check, Preconditions, checked_first
from .scalars import Buffer, Scalars, Value, real_value
from .via import Tile, Via
from .walk import assigned, expressions, is_cooperative, statements, subexpressions

__all__ = ["Planted", "emit_kernel"]

_REGISTER = {"int32": "u32", "int64": "u64", "float32": "f32", "float64": "f64", "bool": "u8"}


@dataclass(frozen=True, slots=True)
class Planted:
    """A check that was emitted: what it tests, and the line it stands before (0: the entry)."""

    check: str
    line: int
    hoisted: bool


def emit_kernel(
    text: Text, kernel: Kernel, via: Via, found: Preconditions, launch: Launch, rule: str
) -> list[Planted]:
    """Write a kernel that no check refuses; what was planted where."""
    writer = _Writer(text, kernel, via, found, launch, rule)
    writer.kernel_body()
    return writer.planted


@dataclass(frozen=True, slots=True)
class _Group:
    """A fragment: its name among all declarations of the kernel, and its registers."""

    name: str
    registers: Sequence[Register]


class _Writer:
    def __init__(
        self,
        text: Text,
        kernel: Kernel,
        via: Via,
        found: Preconditions,
        launch: Launch,
        rule: str,
    ) -> None:
        self.k, self.kernel, self.via, self.found = text, kernel, via, found
        self.rule = rule
        self.x = Scalars(text, launch)
        self.layouts = operand_layouts(kernel)[0]
        self.fragments: list[dict[str, _Group]] = []
        self.names = DeclaredNames()
        self.mutable: set[Register] = set()
        #: checks that hold here
        self.holds: set[Check] = set()
        self.planted: list[Planted] = []

    # --- frame ----------------------------------------------------------------------------------

    def kernel_body(self) -> None:
        """Parameters, arrays, what holds for the whole kernel, and the statements."""
        used = [e for s in statements(self.kernel.body) for x in expressions(s)
                for e in subexpressions(x)]  # fmt: skip
        self._parameters({e.name for e in used if isinstance(e, Var)})
        self._arrays()
        for name in dict.fromkeys(e.name for e in used if isinstance(e, Intrinsic)):
            self.x.intrinsic(name)
        cooperative = any(map(is_cooperative, statements(self.kernel.body)))
        if cooperative and self.rule == "ptx" and self.k.reqntid is None:
            self._whole_warps()
        self._hoist(self.kernel.body, 0)
        self.block(self.kernel.body)

    def _parameters(self, used: set[str]) -> None:
        lengths = self._lengths_used()
        needed = {*accessed_buffers(self.kernel), *self._buffers_used(), *lengths}
        for p in self.kernel.params:
            if not p.buffer:
                declared = self.k.parameter(f"param_{p.name}", _REGISTER[p.type])
                if p.name in used:
                    self.x.scopes[0][p.name] = self._scalar(p, declared)
                continue
            pointer = self.k.parameter(
                f"param_{p.name}", "u64", "global", p.align if p.align > 1 else 0
            )
            length = self.k.parameter(f"length_{p.name}", "u32")
            if p.name not in needed:
                continue
            base = self.k.new("ld.param.u64", "b64", Address(pointer))
            base = self.k.new("cvta.to.global.u64", "b64", base)
            count: Register | int = 0
            if p.name in lengths:
                count = self.k.new("ld.param.u32", "b32", Address(length))
            self.x.buffers[p.name] = Buffer("global", p.type, base, count)

    def _buffers_used(self) -> set[str]:
        """Buffers that scalar statements read or write."""
        out = {s.buffer for s in statements(self.kernel.body) if isinstance(s, Store)}
        for s in statements(self.kernel.body):
            for x in expressions(s):
                for e in subexpressions(x):
                    out |= {e.buffer} if hasattr(e, "buffer") else set()
        return out

    def _lengths_used(self) -> set[str]:
        out = {
            c.buffer for a in self.found.accesses.values() for c in a.checks if c.kind == "bounds"
        }
        for s in statements(self.kernel.body):
            for x in expressions(s):
                out |= {e.buffer for e in subexpressions(x) if isinstance(e, Length)}
        return out

    def _scalar(self, p: Param, declared: object) -> Value:
        kind = _REGISTER[p.type]
        register = self.x.register("int32" if p.type == "bool" else p.type)
        self.k.emit(f"ld.param.{kind}", register, Address(declared))  # type: ignore[arg-type]
        if p.type == "bool":
            register = self.k.new("setp.ne.u32", "pred", register, 0)
        return Value(register, p.type)

    def _arrays(self) -> None:
        accessed, lengths = accessed_buffers(self.kernel), self._lengths_used()
        needed = {*accessed, *self._buffers_used(), *lengths}
        for a in self.kernel.arrays:
            bits = max(ELEMENTS[a.element], 8)
            name, count = f"{a.name}", a.size
            if count is not None:
                count = -(-count * ELEMENTS[a.element] // bits)
            match a:
                case Shared():
                    align = SHARED_ALIGN if a.name in accessed else bits // 8
                    array = self.k.shared(f"shared_{name}", count, align, f"b{bits}")
                    space = "shared"
                case Local():
                    assert count is not None
                    array = self.k.local(f"local_{name}", count, bits // 8, f"b{bits}")
                    space = "local"
                case Constant(_, element, values):
                    kind = {"int32": "s32", "int64": "s64", "float32": "f32"}.get(element, "f64")
                    real = kind.startswith("f")
                    given = tuple(real_value(v, element) if real else v for v in values)
                    array = self.k.constant(f"constant_{name}", given, bits // 8, kind)
                    space = "const"
            if a.name not in needed:
                continue
            base = self.k.new("mov.u64", "b64", array)
            length: Register | int = a.size or 0
            if a.size is None and a.name in lengths:
                octets = self.k.new("mov.u32", "b32", Special("%dynamic_smem_size"))
                each = ELEMENTS[a.element]
                if each >= 8:
                    length = self.k.new("shr.u32", "b32", octets, (each // 8).bit_length() - 1)
                else:
                    length = self.k.new("mul.lo.u32", "b32", octets, 8 // each)
            self.x.buffers[a.name] = Buffer(space, a.element, base, length)

    def _whole_warps(self) -> None:
        """The block is not known, so that it has whole warps only is tested at the entry."""
        self.k.comment("trap unless the block is a multiple of 32 threads")
        sizes = [self.k.new("mov.u32", "b32", Special(f"%ntid.{axis}")) for axis in "xyz"]
        threads = self.k.new("mul.lo.u32", "b32", sizes[0], sizes[1])
        threads = self.k.new("mul.lo.u32", "b32", threads, sizes[2])
        self._trap_if("ne", "u32", self.k.new("and.b32", "b32", threads, 31), 0)
        self.planted.append(Planted("the block is a multiple of 32 threads", 0, True))

    # --- statements -----------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        self.fragments.append({})
        self.x.scopes.append({})
        for number, s in enumerate(block.statements):
            if isinstance(s, FragmentDecl):
                self.emit_decl(s, block.statements[number + 1 :])
            else:
                self.statement(s)
        self._forget(frozenset(self.x.scopes.pop()))
        self.fragments.pop()

    def statement(self, s: Statement) -> None:
        match s:
            case Let(name, type_, value, mutable):
                self._let(name, type_, value, mutable)
            case Assign(name, value):
                target = self.x.find(name).operand
                assert isinstance(target, Register)
                self.x.move(target, self.x.expr(value, target))
                self._forget(frozenset((name,)))
            case Store(buffer, index, value):
                self.x.store(buffer, index, value)
            case If():
                self._if(s)
            case For():
                self._for(s)
            case While():
                self._while(s)
            case Barrier(scope):
                if scope == "block":
                    self.k.emit("bar.sync", 0)
                else:
                    self.k.emit("bar.warp.sync", -1)
            case Return():
                self.k.emit("ret")
            case Block():
                self.block(s)
            case FragmentLoad() | FragmentStore() | MulAdd():
                self.emit_op(s)

    def _let(self, name: str, type_: str, value: Expression, mutable: bool) -> None:
        result = self.x.expr(value)
        if mutable or result.operand in self.mutable:
            target = self.x.register(type_)
            self.x.move(target, result)
            result = Value(target, type_)
            if mutable:
                self.mutable.add(target)
        self._forget(frozenset((name,)))
        self.x.scopes[-1][name] = result

    def _forget(self, changed: frozenset[str]) -> None:
        """Checks of variables that have a new value hold no longer."""
        self.holds = {c for c in self.holds if not c.names & changed}

    def _if(self, s: If) -> None:
        condition = self._condition(s, s.condition)
        end = self.k.label("endif")
        other = self.k.label("else") if s.other is not None else end
        self.k.emit("bra", other, guard=condition, unless=True)
        before = set(self.holds)
        self.block(s.then)
        after = before & self.holds
        if s.other is not None:
            self.k.emit("bra", end)
            self.k.place(other)
            self.holds = set(before)
            self.block(s.other)
            after &= self.holds
        self.k.place(end)
        self.holds = after

    def _condition(self, s: If | While, e: Expression) -> Register:
        """A condition in a predicate, shown to be the same in all lanes where that matters."""
        value = self.x.expr(e)
        condition = self.x.operand(value)
        assert isinstance(condition, Register)
        if id(s) in self.found.votes:
            agree = self.k.register("pred")
            self.k.comment("trap unless all lanes go the same way")
            self.k.emit("vote.sync.uni.pred", agree, condition, -1)
            self.k.emit("trap", guard=agree, unless=True)
            self._plant("all lanes go the same way", s.line)
        return condition

    def _for(self, s: For) -> None:
        """The bound is tested before the body and after it, so that no counter overflows."""
        first, last = self.x.expr(s.low), self.x.expr(s.high)
        if id(s) in self.found.votes:
            for e, bound in ((s.low, first), (s.high, last)):
                if isinstance(bound.operand, Register):
                    self.x.known = {e: bound}
                    self._check(Check("same", index=e), s.line)
            self.x.known = {}
        counter = self.x.register("int32")
        self.x.move(counter, first)
        if last.operand in self.mutable:
            copy = self.x.register("int32")
            self.x.move(copy, last)
            last = Value(copy, "int32")
        assert not isinstance(last.operand, float)
        end = self.k.label("endfor")
        if id(s) not in self.found.runs:
            none = self.k.new("setp.gt.s32", "pred", counter, last.operand)
            self.k.emit("bra", end, guard=none)
        again, before = self._enter(s.body, frozenset((s.name,)), s.line)
        self.x.scopes.append({s.name: Value(counter, "int32")})
        self.block(s.body)
        self.x.scopes.pop()
        done = self.k.new("setp.ge.s32", "pred", counter, last.operand)
        self.k.emit("add.s32", counter, counter, 1)
        self.k.emit("bra", again, guard=done, unless=True)
        self.k.place(end)
        self.holds = before

    def _while(self, s: While) -> None:
        end = self.k.label("endwhile")
        condition = self._condition(s, s.condition)
        if id(s) not in self.found.runs:
            self.k.emit("bra", end, guard=condition, unless=True)
        again, before = self._enter(s.body, frozenset(), s.line)
        self.block(s.body)
        self.k.emit("bra", again, guard=self._condition(s, s.condition))
        self.k.place(end)
        self.holds = before

    def _enter(self, body: Block, changed: frozenset[str], line: int) -> tuple[Label, set[Check]]:
        """The checks before a loop that runs, and its head; also what holds behind it."""
        self._forget(assigned(body) | changed)
        before = set(self.holds)
        self._hoist(body, line, changed)
        again = self.k.label("loop")
        self.k.place(again)
        return again, before

    # --- checks ---------------------------------------------------------------------------------

    def _hoist(self, body: Block, line: int, changed: frozenset[str] = frozenset()) -> None:
        """Plant the checks of what is surely executed, as far as they are known here."""
        changed |= assigned(body)
        for s in checked_first(body, self.found.runs):
            for check in self.found.accesses[id(s)].checks:
                if not check.names & changed and not check.reads_memory:
                    self._check(check, line, hoisted=True)

    def _plant(self, check: str, line: int, hoisted: bool = False) -> None:
        self.planted.append(Planted(check, line, hoisted))

    def _check(
        self, check: Check, line: int, at: Register | None = None, hoisted: bool = False
    ) -> None:
        """Write a check unless it holds already; ``at`` is the address if it is known."""
        if check in self.holds:
            return
        if not check.reads_memory:
            self.holds.add(check)
        self._plant(str(check), line, hoisted)
        self.k.comment(f"trap unless {check}")
        match check.kind:
            case "base" | "address":
                self._aligned(check, at)
            case "stride":
                self._stride(check)
            case "line":
                self._trap_if("lt", "s32", self._value(check.stride), check.amount)
            case "index":
                value = self.x.expr(_given(check.index))
                kind = "s32" if value.type == "int32" else "s64"
                self._trap_if("lt", kind, value.operand, 0)
            case "bounds":
                self._bounds(check)
            case "same":
                self._same(check)

    def _value(self, e: Expression | None) -> Register | int:
        value = self.x.expr(_given(e)).operand
        assert not isinstance(value, float)
        return value

    def _trap_if(
        self, test: str, kind: str, left: Register | int | float, right: Register | int
    ) -> None:
        wrong = self.k.new(f"setp.{test}.{kind}", "pred", left, right)
        self.k.emit("trap", guard=wrong)

    def _aligned(self, check: Check, at: Register | None) -> None:
        buffer = self.x.buffers[check.buffer]
        if check.kind == "base":
            at = buffer.base
            if check.amount:
                at = self.k.new("add.s64", "b64", at, check.amount)
        mask = check.align - 1
        if check.kind == "address" and buffer.bits < 8:  # the address in bits
            mask = check.align * 8 - 1
            start = self.k.new("shl.b64", "b64", buffer.base, 3)
            wide = self.x.wide(self.x.expr(_given(check.index)))
            at = self.k.new("mad.lo.s64", "b64", wide, buffer.bits, start)
        if at is None:
            at = self.x.address(check.buffer, _given(check.index))
        self._trap_if("ne", "u64", self.k.new("and.b64", "b64", at, mask), 0)

    def _stride(self, check: Check) -> None:
        stride = self._value(check.stride)
        low = self.k.new("and.b32", "b32", stride, check.align - 1)
        wrong = self.k.new("setp.ne.u32", "pred", low, 0)
        if check.amount:
            self.k.emit("setp.ne.and.s32", wrong, stride, check.amount, wrong)
        self.k.emit("trap", guard=wrong)

    def _bounds(self, check: Check) -> None:
        """The first element lies at most so far that the last line ends in the buffer.

        The span of a tile and a length fit into 64 bits with room to spare; an index may not.
        """
        first = self.x.wide(self.x.expr(_given(check.index)))
        stride = self._value(check.stride)
        length = self.x.buffers[check.buffer].length
        if isinstance(length, Register):
            length = self.k.new("cvt.u64.u32", "b64", length)
        if isinstance(stride, int):
            span = (check.lines - 1) * stride + check.amount
            last: Register | int = (
                length - span
                if isinstance(length, int)
                else self.k.new("sub.s64", "b64", length, span)
            )
        else:
            spanned = self.k.new("mul.wide.s32", "b64", stride, check.lines - 1)
            last = self.k.new("sub.s64", "b64", length, spanned)
            self.k.emit("sub.s64", last, last, check.amount)
        self._trap_if("gt", "s64", first, last)

    def _same(self, check: Check) -> None:
        """Every lane compares its value with that of lane 0."""
        value = self.x.expr(_given(check.index if check.index is not None else check.stride))
        assert isinstance(value.operand, Register)
        parts: tuple[Register, ...] = (value.operand,)
        if value.type == "int64":
            parts = self.k.registers("b32", 2)
            self.k.emit("mov.b64", parts, value.operand)
        for part in parts:
            first = self.k.new("shfl.sync.idx.b32", "b32", part, 0, 31, -1)
            self._trap_if("ne", "u32", part, first)

    # --- cooperative matrices -------------------------------------------------------------------

    def emit_decl(self, s: FragmentDecl, rest: Sequence[Statement]) -> None:
        """The registers of a fragment; an accumulator that is read before it is written is 0."""
        type_, count = self.via.registers(s.fragment)
        group = self.k.registers(type_, count)
        self.fragments[-1][s.name] = _Group(self.names.new(s.name), group)
        if s.fragment.use == "accumulator" and not _written_first(s.name, rest):
            zero = 0.0 if type_.startswith("f") else 0
            for register in group:
                self.k.emit(f"mov.{type_}", register, zero)

    def group(self, name: str) -> _Group:
        """The fragment that a name means here."""
        return next(f[name] for f in reversed(self.fragments) if name in f)

    def fragment(self, name: str) -> Sequence[Register]:
        """The registers of a fragment."""
        return self.group(name).registers

    def emit_op(self, s: FragmentLoad | FragmentStore | MulAdd) -> None:
        """One statement of cooperative matrices."""
        match s:
            case FragmentLoad():
                self.emit_load(s)
            case FragmentStore():
                self.emit_store(s)
            case MulAdd():
                self.emit_muladd(s)

    def emit_access(self, s: FragmentLoad | FragmentStore) -> Tile:
        """Address and stride of a tile, behind the checks that nothing before has made."""
        space = self.x.buffers[s.buffer].space
        checks = [c for c in self.found.accesses[id(s)].checks if c not in self.holds]
        access = self.found.accesses[id(s)]
        self.x.known = {e: self.x.expr(e) for e in (s.index, s.stride)}
        for plain, e in ((access.index, s.index), (access.stride, s.stride)):
            self.x.known[plain] = self.x.known[e]
        for check in checks:  # of the index, before there is an address
            if check.kind in ("index", "bounds", "same"):
                self._check(check, s.line)
        address = self.x.address(s.buffer, s.index)
        for check in checks:
            if check.kind not in ("index", "bounds", "same"):
                self._check(check, s.line, at=address)
        stride = self._value(s.stride)
        self.x.known = {}
        return Tile(s.fragment, layout_suffix(s.layout), space, address, stride)

    def emit_load(self, s: FragmentLoad) -> None:
        self.via.load(self.emit_access(s), self.fragment(s.name))

    def emit_store(self, s: FragmentStore) -> None:
        self.via.store(self.emit_access(s), self.fragment(s.name))

    def emit_muladd(self, s: MulAdd) -> None:
        d, a, b, c = (self.fragment(name) for name in (s.target, s.a, s.b, s.c))
        self.via.muladd(s.config, (self.operand_layout(s.a), self.operand_layout(s.b)), d, a, b, c)

    def operand_layout(self, name: str) -> str:
        """The layout that an operand was loaded with."""
        return self.layouts[self.group(name).name]


def _given(e: Expression | None) -> Expression:
    assert e is not None
    return e


def _written_first(name: str, rest: Sequence[Statement]) -> bool:
    """Whether a fragment is written before anything reads it, as the next statements show."""
    for s in rest:
        match s:
            case FragmentLoad() if s.name == name:
                return True
            case MulAdd() if name in (s.target, s.c):
                return s.c != name
            case FragmentStore() if s.name == name:
                return False
            case _:
                if any(name in _mentioned(inner) for inner in _inside(s)):
                    return False
    return True  # nothing reads it


def _inside(s: Statement) -> Iterator[Statement]:
    yield from statements(Block((s,)))


def _mentioned(s: Statement) -> tuple[str, ...]:
    match s:
        case MulAdd(target, _, _, c):
            return (target, c)
        case FragmentLoad(name) | FragmentStore(name):
            return (name,)
        case _:
            return ()

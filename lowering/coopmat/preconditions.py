"""What must hold at run time for a statement of cooperative matrices, and what is known of it.

For every access: the address and the stride are aligned, the stride covers a line, the tile lies in
its buffer, all lanes name the same tile.  What facts about values prove is not checked, and the
reason is kept; what they refute is refused; the rest becomes a :class:`Check` with a trap.
``cuda`` is the rule of the seed: the element at the address at a multiple of 32 bytes, the stride
at one of 16.  ``ptx`` is the rule of the PTX ISA (Matrix Storage for WMMA; wmma.load, wmma.store).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from math import gcd

from .analysis import after, entry_env, loop_env
from .assume import assume
from .expressions import Env, fact_of
from .facts import Fact, Launch, Spread
from .forms import elt_of
from .ir import (
    Barrier,
    Block,
    Const,
    Expression,
    For,
    FragmentLoad,
    FragmentStore,
    If,
    Kernel,
    Shared,
    Statement,
    While,
)
from .lets import Lets
from .refusals import Refusal
from .text import expression_text
from .via import Via
from .walk import blocks, is_cooperative, names, reads_memory, returns, statements

__all__ = ["RULES", "SHARED_ALIGN", "Access", "Check", "Preconditions", "examine"]

RULES = ("ptx", "cuda")
#: More elements than this no buffer has: its length is a parameter of 32 bits.
_MAX_LENGTH = 1 << 32
#: Where an array in shared memory starts that a fragment is loaded from or stored to.
SHARED_ALIGN = 32


@dataclass(frozen=True, slots=True)
class Check:
    """A test at run time that ends in a trap; two that test the same are equal.

    ``kind`` is ``base`` (``amount`` bytes behind the start of the buffer lie at a multiple of
    ``align``), ``address``, ``stride`` (``amount``: the stride that need not be a multiple of
    ``align``, 0 for none), ``line`` (the stride is at least ``amount``), ``index`` (not negative),
    ``bounds`` (``lines`` lines of ``amount`` elements), or ``same`` (in all lanes).
    """

    kind: str
    buffer: str = ""
    index: Expression | None = None
    stride: Expression | None = None
    align: int = 0
    amount: int = 0
    lines: int = 0

    @property
    def names(self) -> frozenset[str]:
        """The variables that the test reads."""
        used = [names(e) for e in (self.index, self.stride) if e is not None]
        return frozenset().union(*used)

    @property
    def reads_memory(self) -> bool:
        """Whether the test reads elements of buffers."""
        return any(reads_memory(e) for e in (self.index, self.stride) if e is not None)

    def __str__(self) -> str:
        index = "" if self.index is None else expression_text(self.index)
        stride = "" if self.stride is None else expression_text(self.stride)
        match self.kind:
            case "base":
                offset = f" + {self.amount}" if self.amount else ""
                return f"'{self.buffer}'{offset} is a multiple of {self.align} bytes"
            case "address":
                return f"{self.buffer}[{index}] is at a multiple of {self.align} bytes"
            case "stride":
                packed = f", or {self.amount}" if self.amount else ""
                return f"stride {stride} is a multiple of {self.align} elements{packed}"
            case "line":
                return f"stride {stride} is at least {self.amount}"
            case "index":
                return f"index {index} is not negative"
            case "bounds":
                return (
                    f"{self.lines} x {self.amount} elements from {index}, stride {stride}, lie in"
                    f" '{self.buffer}'"
                )
            case _:
                return f"{index or stride} is the same in all lanes"


@dataclass
class Access:
    """A load or store: the checks it needs, and what needs none with the reason."""

    statement: FragmentLoad | FragmentStore
    #: index and stride, with variables of one value replaced by what they were given
    index: Expression
    stride: Expression
    checks: list[Check] = field(default_factory=list)
    proved: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Preconditions:
    """What was found for a kernel; keys are the identities of its statements."""

    accesses: dict[int, Access] = field(default_factory=dict)
    #: branches whose condition must be shown to be the same in all lanes
    votes: set[int] = field(default_factory=set)
    #: loops that run at least once whenever they are reached
    runs: set[int] = field(default_factory=set)
    refusals: list[Refusal] = field(default_factory=list)


def examine(
    kernel: Kernel,
    launch: Launch,
    via: type[Via],
    rule: str,
    bounds: bool,
    skipped: Container[int] = (),
) -> Preconditions:
    """Walk a kernel with what is known of its values; every statement must be its own object.

    Accesses among the ``skipped`` identities are not looked at: they are refused already.
    """
    walk = _Walk(kernel, launch, via, rule, bounds, skipped)
    walk.block(kernel.body, entry_env(kernel, launch), Spread.BLOCK, again=False)
    return walk.out


class _Walk:
    def __init__(
        self,
        kernel: Kernel,
        launch: Launch,
        via: type[Via],
        rule: str,
        bounds: bool,
        skipped: Container[int],
    ) -> None:
        self.launch, self.via, self.rule, self.bounds = launch, via, rule, bounds
        self.skipped = skipped
        self.lets = Lets()
        self.buffers = {x.name: x for x in (*kernel.params, *kernel.arrays)}
        self.out = Preconditions()
        #: whether a statement of cooperative matrices can come after the current one
        self.follows = False

    def refuse(self, s: Statement, code: str, what: str, reason: str, help: str = "") -> None:
        self.out.refusals.append(Refusal(code, what, reason, s.line, help))

    def block(self, block: Block, env: Env, spread: Spread, again: bool) -> Env:
        """``again``: cooperative statements can come after the block, ``spread``: how threads
        that are here differ."""
        rest = [any(map(is_cooperative, statements(Block((s,))))) for s in block.statements]
        outside = self.lets
        self.lets = outside.inner()
        for number, s in enumerate(block.statements):
            later = again or any(rest[number + 1 :])
            self.statement(s, env, spread, later)
            self.lets.see(s)
            env = after(s, env, self.launch)
        self.lets = outside
        return env

    def statement(self, s: Statement, env: Env, spread: Spread, later: bool) -> None:
        match s:
            case FragmentLoad() | FragmentStore():
                self.access(s, env)
            case Barrier(scope):
                self.barrier(s, scope, spread)
            case Block():
                self.block(s, env, spread, later)
            case If(condition, then, other):
                here = max(spread, self.branch(s, condition, env, later))
                self.block(then, assume(condition, True, env, self.launch), here, later)
                if other is not None:
                    self.block(other, assume(condition, False, env, self.launch), here, later)
            case For(name, low, high, body):
                outside, self.lets = self.lets, self.lets.inner()
                self.lets.hide(name)
                first, last = (fact_of(e, env, self.launch) for e in (low, high))
                if first.high <= last.low:
                    self.out.runs.add(id(s))
                here = max(spread, self.branches(s, [(low, first), (high, last)], later))
                self.block(body, loop_env(s, env, self.launch), here, self.inside(s, later))
                self.lets = outside
            case While(condition, body):
                start = fact_of(condition, env, self.launch)
                if start.low == 1:
                    self.out.runs.add(id(s))
                inner = loop_env(s, env, self.launch)
                again = fact_of(condition, self._behind(body, inner), self.launch)
                decided = [(condition, start), (condition, again)]
                here = max(spread, self.branches(s, decided, later))
                self.block(body, inner, here, self.inside(s, later))
            case _:
                pass

    def _behind(self, body: Block, env: Env) -> Env:
        """What is known at the end of a loop's body, where its condition is asked again."""
        for s in body.statements:
            env = after(s, env, self.launch)
        return env

    @staticmethod
    def inside(loop: For | While, later: bool) -> bool:
        """Whether cooperative statements can come after a statement of a loop's body."""
        return later or any(map(is_cooperative, statements(loop.body)))

    # --- divergence -----------------------------------------------------------------------------

    def branch(self, s: If | While, condition: Expression, env: Env, later: bool) -> Spread:
        fact = fact_of(condition, env, self.launch)
        return self.branches(s, [(condition, fact)], later)

    def branches(
        self, s: If | While | For, decided: list[tuple[Expression, Fact]], later: bool
    ) -> Spread:
        """The spread of a branch; lanes that part before a cooperative statement are refused."""
        inside = any(map(is_cooperative, statements(Block(blocks(s)))))
        ends = later and any(returns(b) for b in blocks(s))
        worst = max(fact.spread for _, fact in decided)
        if self.rule == "cuda":
            return worst
        barrier = any(isinstance(x, Barrier) for x in statements(Block(blocks(s))))
        if worst == Spread.OPEN and (inside or ends or barrier):
            self.out.votes.add(id(s))
        if not (inside or ends):
            return worst
        for e in dict.fromkeys(e for e, fact in decided if fact.spread == Spread.LANE):
            end = "inside" if inside else "later, which lanes that returned do not reach"
            self.refuse(
                s, "R35", f"'{expression_text(e)}'",
                f"depends on the lane, and there are cooperative-matrix statements {end}",
                "decide by the warp, thread_idx_x / 32 with a known block",
            )  # fmt: skip
        return worst

    def barrier(self, s: Barrier, scope: str, spread: Spread) -> None:
        if spread == Spread.LANE or (spread == Spread.WARP and scope == "block"):
            who = "warp" if scope == "block" and spread == Spread.WARP else "lane"
            reason = f"under a condition that depends on the {who}"
            self.refuse(s, "R38", f"barrier of the {scope}", reason)

    # --- accesses -------------------------------------------------------------------------------

    def access(self, s: FragmentLoad | FragmentStore, env: Env) -> None:
        plain = self.lets.plain(s.index), self.lets.plain(s.stride)
        access = self.out.accesses[id(s)] = Access(s, *plain)
        if id(s) in self.skipped:
            return
        buffer = self.buffers[s.buffer]
        index, stride = (fact_of(e, env, self.launch) for e in (s.index, s.stride))
        space = "shared" if isinstance(buffer, Shared) else "global"
        align, step = 32, 16
        if self.rule == "ptx":
            store = isinstance(s, FragmentStore)
            align = step = self.via.alignment(s.fragment, s.layout, space, store)
        known = SHARED_ALIGN if space == "shared" else getattr(buffer, "align", 1)
        self.address(access, index, align, known)
        self.stride(access, stride, step)
        if self.rule == "ptx":
            self.line(access, stride)
            self.same(access, index, stride)
        self.extent(access, index, stride)

    def address(self, access: Access, index: Fact, align: int, known: int) -> None:
        """The address of the first element: base and index together, in bits."""
        s = access.statement
        bits = elt_of(s.fragment)[1]
        whole = align * 8
        modulus = whole if index.modulus == 0 else gcd(whole, index.modulus * bits)
        rest = index.residue * bits % modulus
        text, what = expression_text(s.index), f"'{s.buffer}' starts at a multiple of {known} bytes"
        if rest % gcd(modulus, known * 8):
            where = f"{rest // 8} bytes" if rest % 8 == 0 else f"{rest} bits"
            reason = f"lies {where} behind a multiple of {gcd(modulus, known * 8) // 8 or 1} bytes"
            reason += f"; {align} bytes are needed"
            self.refuse(s, "R33", f"{s.buffer}[{text}]", reason)
        elif modulus < whole:
            access.checks.append(Check("address", s.buffer, access.index, align=align))
        elif known % align == 0:
            reason = f"{what}, {text} is a multiple of {whole // bits}"
            check = Check("address", s.buffer, access.index, align=align)
            access.proved.append((str(check), reason))
        else:
            access.checks.append(Check("base", s.buffer, align=align, amount=rest // 8))

    def stride(self, access: Access, stride: Fact, align: int) -> None:
        s = access.statement
        bits = elt_of(s.fragment)[1]
        step = align * 8 // gcd(align * 8, bits)
        length = line_of(s)[1]
        packed = self.rule == "ptx" and self.via.packs and length % step != 0
        check = Check(
            "stride", "", None, access.stride, align=step, amount=length if packed else 0
        )  # fmt: skip
        text = expression_text(s.stride)
        modulus = step if stride.modulus == 0 else gcd(step, stride.modulus)
        if packed and stride.modulus == 0 and stride.residue == length:
            access.proved.append((str(check), f"{text} is {length}"))
        elif stride.residue % modulus and not (packed and _possible(stride, length)):
            reason = f"is no multiple of {step} elements ({align} bytes)"
            self.refuse(s, "R34", f"stride {text}", reason)
        elif modulus == step and stride.residue % step == 0:
            if step > 1:
                access.proved.append((str(check), f"{text} is a multiple of {step}"))
        else:
            access.checks.append(check)

    def line(self, access: Access, stride: Fact) -> None:
        s = access.statement
        length = line_of(s)[1]
        check = Check("line", "", None, access.stride, amount=length)
        text = expression_text(s.stride)
        if stride.high < length:
            reason = f"is less than a line of {length} elements"
            self.refuse(s, "R34", f"stride {text}", reason)
        elif stride.low >= length:
            access.proved.append((str(check), f"{text} is at least {stride.low}"))
        else:
            access.checks.append(check)

    def same(self, access: Access, index: Fact, stride: Fact) -> None:
        s = access.statement
        for e, fact, what in ((access.index, index, "index"), (access.stride, stride, "stride")):
            text = expression_text(e)
            check = Check("same", index=e) if what == "index" else Check("same", stride=e)
            if fact.spread == Spread.LANE:
                reason = "depends on the lane, but a warp loads and stores one tile"
                cure = "use thread_idx_x / 32, with a known block"
                self.refuse(s, "R36", f"{what} {text}", reason, cure)
            elif fact.spread == Spread.OPEN:
                access.checks.append(check)
            elif not isinstance(e, Const):
                access.proved.append((str(check), f"nothing in {text} depends on the lane"))

    def extent(self, access: Access, index: Fact, stride: Fact) -> None:
        """The tile lies in its buffer: from the index on, and to the end of the last line."""
        s = access.statement
        text = expression_text(s.index)
        lines, length = line_of(s)
        size = self._length(s.buffer)
        last = index.low + (lines - 1) * stride.low + length
        if index.high < 0:
            self.refuse(s, "R33", f"index {text}", "is negative")
            return
        if index.low >= _MAX_LENGTH:
            self.refuse(s, "R33", f"index {text}", "is larger than any buffer")
            return
        if self.bounds and size is not None and last > size:
            reason = f"the tile ends at {last}, but '{s.buffer}' has {size} elements"
            self.refuse(s, "R33", f"{s.buffer}[{text}]", reason)
            return
        check = Check("index", "", access.index)
        if index.low >= 0:
            if not isinstance(s.index, Const):
                access.proved.append((str(check), f"{text} is at least {index.low}"))
        else:
            access.checks.append(check)
        if not self.bounds:
            return
        inside = Check("bounds", s.buffer, access.index, access.stride, amount=length, lines=lines)
        end = index.high + (lines - 1) * stride.high + length
        if size is not None and end <= size:
            reason = f"it ends at {end} at most, '{s.buffer}' has {size} elements"
            access.proved.append((str(inside), reason))
        else:
            access.checks.append(inside)

    def _length(self, buffer: str) -> int | None:
        return getattr(self.buffers[buffer], "size", None)


def line_of(s: FragmentLoad | FragmentStore) -> tuple[int, int]:
    """How many lines a tile has in memory, and the elements of each."""
    f = s.fragment
    return (f.rows, f.columns) if s.layout == "row" else (f.columns, f.rows)


def _possible(fact: Fact, value: int) -> bool:
    """Whether a fact leaves a value open."""
    if not fact.low <= value <= fact.high:
        return False
    return value == fact.residue if fact.modulus == 0 else value % fact.modulus == fact.residue


def checked_first(block: Block, runs: set[int]) -> Iterator[Statement]:
    """The loads and stores that are executed whenever a block is entered."""
    for s in block.statements:
        match s:
            case FragmentLoad() | FragmentStore():
                yield s
            case Block():
                yield from checked_first(s, runs)
            case For(_, _, _, body) | While(_, body) if id(s) in runs:
                yield from checked_first(body, runs)
            case _:
                pass
        if any(returns(b) for b in blocks(s)) or (not blocks(s) and returns(Block((s,)))):
            return

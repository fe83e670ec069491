"""Programs of loops as PTX: loops and branches, and the order in which things are known.

Values that a loop does not change are computed before it.  Conditions are not: each test is one
``setp`` where it stands, tagged with what it is for (:class:`.loops.Why`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

from ptxsim.build import Kernel, Register
from ptxsim.errors import UsageError
from ptxsim.targets import parse_target

from .emit_address import Addresses
from .emit_data import Data
from .emit_matrix import Matrices
from .emit_values import SPECIALS, Value, Values
from .integers import Expr, Int, Symbol, substitute, symbols
from .loops import (
    Access,
    Block,
    BlockSync,
    Commit,
    Compute,
    Copy,
    Define,
    Fill,
    If,
    LoadMatrix,
    Loop,
    Mma,
    Node,
    Parallel,
    Program,
    StoreMatrix,
    Test,
    Wait,
    ZeroFill,
)

__all__ = ["emit"]

_Names: TypeAlias = "dict[str, Expr]"


def emit(
    program: Program,
    target: str = "sm_80",
    version: tuple[int, int] | None = None,
    header: Sequence[str] = (),
) -> Kernel:
    """The kernel of a program.

    Parameters are the global buffers and then the sizes, each from 0 to 2**31 - 1.  A launch gives
    ``dynamic_shared`` bytes of the kernel.  Without cp.async (before sm_80) copies are loads and
    stores.  :class:`ptxsim.UsageError` for what has no code.
    """
    kernel = Kernel(program.name, target, version, list(header), program.block)
    _Writer(kernel, program).write()
    return kernel


class _Writer:
    """Writes one program."""

    def __init__(self, k: Kernel, program: Program) -> None:
        parsed = parse_target(k.target)
        assert parsed is not None, "the kernel has checked it"
        self._k, self._program = k, program
        self._async = parsed.number >= 80
        self._values = Values(k, program.block)
        self._addresses = Addresses(k, self._values)
        self._data = Data(k, self._values, self._addresses)
        self._matrices = Matrices(k, self._values, self._addresses, self._data)

    def write(self) -> None:
        """Declarations and body."""
        self._addresses.declare(self._program.buffers)
        for name in self._program.sizes:
            self._values.size(name, self._k.parameter(name, "u32"))
        names: _Names = {
            name: Int(0)
            for name, extent in zip(SPECIALS, self._program.block, strict=False)
            if extent == 1
        }
        top = self._values.scopes[0]
        with self._k.writing(top.lines):
            self._block(self._program.body, names)
        self._k.append(top.lines)

    # --- structure ------------------------------------------------------------------------------

    def _block(self, block: Block, names: Mapping[str, Expr]) -> None:
        inner = dict(names)
        for node in block:
            if isinstance(node, Loop):
                self._loop(node, inner)
            elif isinstance(node, If):
                self._branch(node, inner)
            elif isinstance(node, Define):
                inner[node.name] = self._define(node, inner)
            else:
                self._statement(_substituted(node, inner))

    def _loop(self, loop: Loop, names: _Names) -> None:
        start, stop = (substitute(e, names) for e in (loop.start, loop.stop))
        if loop.parallel.thread or loop.parallel.block:
            axis = substitute(Symbol(loop.parallel.value), names)
            self._block(loop.body, {**names, loop.var: axis + start})
            return
        if loop.parallel is Parallel.MMA:
            raise UsageError(f"the axis {loop.var} belongs to a matrix instruction, not to a loop")
        fixed = isinstance(start, Int) and isinstance(stop, Int)
        if isinstance(start, Int) and isinstance(stop, Int):
            if loop.parallel is not Parallel.SERIAL or stop.value - start.value <= 1:
                for number in range(start.value, stop.value):
                    self._block(loop.body, {**names, loop.var: Int(number)})
                return
        if not fixed and loop.parallel is not Parallel.SERIAL:
            raise UsageError(f"the loop of {loop.var} is written out, its bounds must be constants")
        self._serial(loop, start, stop, names)

    def _serial(self, loop: Loop, start: Expr, stop: Expr, names: _Names) -> None:
        k, values = self._k, self._values
        first, last = values.value(start), values.value(stop)
        (low, high), (least, most) = values.bounds(start), values.bounds(stop)
        counter = k.register("b32")
        range_ = (low, None if most is None else most - 1)
        var = values.hold(loop.var, counter, len(values.scopes), range_)
        with values.inside(var, start) as scope:
            self._block(loop.body, {**names, loop.var: var})
        if not scope.lines:
            return
        again, end = k.label("LOOP"), k.label("END")
        if high is None or least is None or high >= least:
            k.emit("bra", end, guard=self._at_least(first, last))
        k.emit("mov.u32", counter, first)
        k.place(again)
        k.append(scope.lines)
        k.append(scope.advance)
        k.emit("add.s32", counter, counter, 1)
        k.emit("bra", again, guard=k.new("setp.lt.s32", "pred", counter, last))
        k.place(end)

    def _at_least(self, first: Value, last: Value) -> Register:
        """Whether a loop is empty."""
        if isinstance(first, int):
            assert isinstance(last, Register)
            return self._k.new("setp.le.s32", "pred", last, first)
        return self._k.new("setp.ge.s32", "pred", first, last)

    def _branch(self, node: If, names: _Names) -> None:
        guard = self._data.guard([_test(t, names) for t in node.tests])
        if guard is False:
            return
        if guard is None:
            self._block(node.body, names)
            return
        assert isinstance(guard, Register)
        with self._values.where(guard):
            self._block(node.body, names)

    def _define(self, node: Define, names: _Names) -> Expr:
        """What stands for the name: an expression if it is simple or moves with a loop."""
        value = substitute(node.value, names)
        values = self._values
        if isinstance(value, (Int, Symbol)):
            return value
        if node.why is not None:
            return values.condition(node.name, value, node.why.value)
        if any(values.loop(Symbol(name)) for name in symbols(value)):
            return value
        return values.define(node.name, value)

    # --- statements -----------------------------------------------------------------------------

    def _statement(self, node: Node) -> None:
        match node:
            case Copy():
                self._data.copy(node)
            case Fill() if node.out.buffer.fragment is not None:
                self._matrices.fill(node)
            case Fill():
                self._data.fill(node)
            case Compute():
                self._data.compute(node)
            case LoadMatrix():
                self._matrices.load(node)
            case Mma():
                self._matrices.multiply(node)
            case StoreMatrix():
                self._matrices.store(node)
            case Commit() if self._async:
                self._k.emit("cp.async.commit_group")
            case Wait(pending) if self._async:
                if pending is None:
                    self._k.emit("cp.async.wait_all")
                else:
                    self._k.emit("cp.async.wait_group", pending)
            case Commit() | Wait():
                pass
            case _:
                assert isinstance(node, BlockSync), "structure is written elsewhere"
                self._k.emit("bar.sync", 0)


# --- names ----------------------------------------------------------------------------------------


def _substituted(node: Node, names: Mapping[str, Expr]) -> Node:
    """A statement with the values of names in its expressions."""
    changed: dict[str, Any] = {
        f.name: _replaced(getattr(node, f.name), names) for f in fields(node)
    }
    return replace(node, **changed)


def _replaced(part: object, names: Mapping[str, Expr]) -> object:
    match part:
        case Access(buffer, index):
            if len(index) != len(buffer.strides):
                raise UsageError(f"{part}: {buffer} has {len(buffer.strides)} axes")
            return Access(part.buffer, tuple(substitute(e, names) for e in part.index))
        case Test():
            return _test(part, names)
        case ZeroFill():
            return replace(part, live=substitute(part.live, names))
        case tuple():
            return tuple(_replaced(p, names) for p in part)
        case None | int() | float() | str():
            return part
        case _:
            return substitute(part, names)  # type: ignore[arg-type]


def _test(test: Test, names: Mapping[str, Expr]) -> Test:
    return Test(substitute(test.condition, names), test.why)

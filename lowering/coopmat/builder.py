"""Kernels of the IR written as Python: operators make expressions, ``with`` makes blocks.

    k = KernelBuilder("scale", block=(32, 1, 1))
    a = k.buffer("a", "float32")
    with k.when(k.thread_idx_x < k.length(a)):
        a[k.thread_idx_x] = a[k.thread_idx_x] * 2.0
    kernel = k.kernel()

``//`` and ``%`` are the IR's div and mod, which cut toward zero as those of C and PTX do: unlike
Python's, ``-7 // 2`` is -3 and ``-7 % 2`` is -1.  ``/`` is div too, for floating-point numbers.
``and`` and ``or`` cannot be operators of Python, so they are ``x.and_(y)`` and ``x.or_(y)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from . import ir
from .ir import (
    ELEMENTS,
    INTRINSICS,
    SCALARS,
    Assign,
    Barrier,
    Binary,
    Block,
    Cast,
    Const,
    Constant,
    Element,
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
    Unary,
    Var,
    While,
)
from .vocabulary import COMPONENTS, LAYOUTS, SCOPES, USES, Config, Fragment, Shape
from .walk import expressions, names

__all__ = [
    "Array",
    "BuildError",
    "KernelBuilder",
    "Matrix",
    "Operand",
    "Value",
    "Variable",
]


class BuildError(TypeError):
    """A kernel that cannot be built: types that do not fit, or blocks out of order."""


_INTEGERS = ("int32", "int64")
_NUMBERS = ("int32", "int64", "float32", "float64")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
#: The types that each operator takes.
_TAKES = {
    "add": _NUMBERS, "sub": _NUMBERS, "mul": _NUMBERS, "div": _NUMBERS, "mod": _INTEGERS,
    "eq": SCALARS, "ne": SCALARS, "lt": _NUMBERS, "le": _NUMBERS, "gt": _NUMBERS, "ge": _NUMBERS,
    "and": ("bool",), "or": ("bool",), "shl": _INTEGERS, "shr": _INTEGERS, "bitand": _INTEGERS,
    "bitor": _INTEGERS, "bitxor": _INTEGERS, "neg": _NUMBERS, "not": ("bool",),
    "bitnot": _INTEGERS,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An expression with its type; operators on it make larger expressions."""

    expression: Expression
    type: str

    def __bool__(self) -> bool:
        raise BuildError(
            "an expression has no truth value while the kernel is built: use k.when(...) for a "
            "branch, x.and_(y), x.or_(y) and x.not_() for logic, and no chained comparisons"
        )

    def __add__(self, other: Operand) -> Value:
        return _binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return _binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return _binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return _binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return _binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return _binary("mul", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return _binary("div", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return _binary("div", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return _quotient(_binary("div", self, other))

    def __rtruediv__(self, other: Operand) -> Value:
        return _quotient(_binary("div", other, self))

    def __mod__(self, other: Operand) -> Value:
        return _binary("mod", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return _binary("mod", other, self)

    def __lshift__(self, other: Operand) -> Value:
        return _binary("shl", self, other)

    def __rlshift__(self, other: Operand) -> Value:
        return _binary("shl", other, self)

    def __rshift__(self, other: Operand) -> Value:
        return _binary("shr", self, other)

    def __rrshift__(self, other: Operand) -> Value:
        return _binary("shr", other, self)

    def __and__(self, other: Operand) -> Value:
        return _binary("bitand", self, other)

    def __rand__(self, other: Operand) -> Value:
        return _binary("bitand", other, self)

    def __or__(self, other: Operand) -> Value:
        return _binary("bitor", self, other)

    def __ror__(self, other: Operand) -> Value:
        return _binary("bitor", other, self)

    def __xor__(self, other: Operand) -> Value:
        return _binary("bitxor", self, other)

    def __rxor__(self, other: Operand) -> Value:
        return _binary("bitxor", other, self)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return _binary("eq", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return _binary("ne", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Operand) -> Value:
        return _binary("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return _binary("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return _binary("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return _binary("ge", self, other)

    def __neg__(self) -> Value:
        return _unary("neg", self)

    def __invert__(self) -> Value:
        return _unary("bitnot", self)

    def and_(self, other: Operand) -> Value:
        """Both are true."""
        return _binary("and", self, other)

    def or_(self, other: Operand) -> Value:
        """One of both is true."""
        return _binary("or", self, other)

    def not_(self) -> Value:
        """It is false."""
        return _unary("not", self)

    def cast(self, type_: str) -> Value:
        """The value in another type."""
        return Value(Cast(_known(type_, SCALARS, "type"), self.expression), type_)


class Variable(Value):
    """A local variable or a scalar parameter."""

    __slots__ = ()


#: What stands where an expression is needed: numbers become constants of the type beside them.
Operand = Value | int | float | bool


def _known(word: str, words: Sequence[str], what: str) -> str:
    if word not in words:
        raise BuildError(f"no {what} {word!r}; known: {', '.join(words)}")
    return word


def _default_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int32"
    if isinstance(value, float):
        return "float32"
    raise BuildError(f"{value!r} is no expression and no number")


def _constant(value: object, type_: str) -> Value:
    """A Python number as a constant of a type, if it is one."""
    fits = {
        "bool": isinstance(value, bool),
        "int32": isinstance(value, int) and not isinstance(value, bool),
        "int64": isinstance(value, int) and not isinstance(value, bool),
        "float32": isinstance(value, int | float) and not isinstance(value, bool),
        "float64": isinstance(value, int | float) and not isinstance(value, bool),
    }[type_]
    if not fits or not isinstance(value, int | float):
        raise BuildError(f"{value!r} is no constant of type {type_}")
    if type_ in _INTEGERS:
        half = 1 << (31 if type_ == "int32" else 63)
        if not -half <= value < half:
            raise BuildError(f"{value} is out of the range of {type_}")
        if value == -half:
            return _constant(value + 1, type_) - 1
        # The text form has no negative literals.
        if value < 0:
            return Value(Unary("neg", Const(int(-value), type_)), type_)
        return Value(Const(int(value), type_), type_)
    if type_ == "bool":
        return Value(Const(bool(value), type_), type_)
    number = float(value)
    if not math.isfinite(number):
        raise BuildError(f"{number} has no text form")
    if math.copysign(1.0, number) < 0:
        return Value(Unary("neg", Const(-number, type_)), type_)
    return Value(Const(number, type_), type_)


def _of(operand: object, *types: str) -> Value:
    """An operand as an expression of one of some types, the first of which numbers get."""
    if not isinstance(operand, Value):
        natural = _default_type(operand)
        return _constant(operand, natural if natural in types or not types else types[0])
    if types and operand.type not in types:
        raise BuildError(f"{' or '.join(types)} is needed, not {operand.type}")
    return operand


def _binary(op: str, left: object, right: object) -> Value:
    if isinstance(left, Value):
        x = left
        y = right if isinstance(right, Value) else _constant_beside(op, right, x.type)
    else:
        y = _of(right)
        x = _constant_beside(op, left, y.type)
    if x.type != y.type:
        raise BuildError(f"{op} of {x.type} and {y.type}: cast one of them")
    if x.type not in _TAKES[op]:
        raise BuildError(f"{op} of {x.type}: {' or '.join(_TAKES[op])} is needed")
    type_ = "bool" if op in _COMPARISONS else x.type
    return Value(Binary(op, x.expression, y.expression), type_)


def _constant_beside(op: str, value: object, type_: str) -> Value:
    _default_type(value)
    try:
        return _constant(value, type_)
    except BuildError as error:
        raise BuildError(f"{op} of {type_}: {error}") from None


def _unary(op: str, x: Value) -> Value:
    if x.type not in _TAKES[op]:
        raise BuildError(f"{op} of {x.type}: {' or '.join(_TAKES[op])} is needed")
    return Value(Unary(op, x.expression), x.type)


def _quotient(value: Value) -> Value:
    if value.type in _INTEGERS:
        raise BuildError("/ of integers: write //, which cuts toward zero")
    return value


# --- buffers and fragments ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A buffer parameter or an array: ``a[i]`` reads an element, ``a[i] = x`` writes it."""

    name: str
    element: str
    space: str
    builder: KernelBuilder

    __iter__ = None  # else Python would try a[0], a[1], ... without end

    def __getitem__(self, index: Operand) -> Value:
        return Value(Element(self.name, _of(index, *_INTEGERS).expression), self._scalar())

    def __setitem__(self, index: Operand, value: Operand) -> None:
        if self.space == "constant":
            raise BuildError(f"'{self.name}' is constant and cannot be stored to")
        place, new = _of(index, *_INTEGERS), _of(value, self._scalar())
        self.builder._append(Store(self.name, place.expression, new.expression))

    def _scalar(self) -> str:
        if self.element not in SCALARS:
            raise BuildError(
                f"elements of '{self.name}' are {self.element}, which only cooperative matrices "
                "load and store"
            )
        return self.element


@dataclass(frozen=True, slots=True)
class Matrix:
    """A declared fragment."""

    name: str
    fragment: Fragment


def _shape(shape: Shape | str | tuple[int, int, int]) -> Shape:
    if isinstance(shape, Shape):
        return shape
    parts = shape.split("x") if isinstance(shape, str) else shape
    if len(parts) != 3 or not all(str(p).isdecimal() for p in parts):
        raise BuildError(f"no shape {shape!r}; written as '16x16x16' or (16, 16, 16)")
    m, n, k = (int(p) for p in parts)
    return Shape(m, n, k)


# --- the kernel -----------------------------------------------------------------------------------


_WHEN, _OTHERWISE = "when", "otherwise"


class _Frame:
    """A block that is being filled, as the context of a ``with``."""

    def __init__(
        self, builder: KernelBuilder, what: str, build: Callable[[Block], Statement],
        inside: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.builder, self.what, self.build = builder, what, build
        self.statements: list[Statement] = []
        self.names: set[str] = set(inside)
        self.fragments: set[str] = set()
        #: whether the last statement is an ``if`` that can still get its ``else``
        self.open_if = False

    def __enter__(self) -> None:
        self.builder._enter(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.builder._leave(self, failed=kind is not None)


class _Loop(_Frame):
    """The body of a loop, whose context is its variable."""

    variable: Variable

    def __enter__(self) -> Variable:  # type: ignore[override]
        self.builder._enter(self)
        return self.variable


def _intrinsic(name: str) -> property:
    assert name in INTRINSICS

    def get(_: KernelBuilder) -> Value:
        return Value(Intrinsic(name), "int32")

    return property(get, doc=f"``{name}`` of the executing thread, an int32.")


_AnyFrame = TypeVar("_AnyFrame", bound=_Frame)


class KernelBuilder:
    """A kernel under construction; statements are added in the order of the calls."""

    def __init__(self, name: str, block: tuple[int, int, int] | None = None) -> None:
        self._name, self._block = name, block
        self._params: list[Param] = []
        self._arrays: list[ir.Array] = []
        root = _Frame(self, "kernel", lambda body: body)
        self._frames = [root]
        self._unentered = ""

    thread_idx_x = _intrinsic("thread_idx_x")
    thread_idx_y = _intrinsic("thread_idx_y")
    thread_idx_z = _intrinsic("thread_idx_z")
    block_idx_x = _intrinsic("block_idx_x")
    block_idx_y = _intrinsic("block_idx_y")
    block_idx_z = _intrinsic("block_idx_z")
    block_dim_x = _intrinsic("block_dim_x")
    block_dim_y = _intrinsic("block_dim_y")
    block_dim_z = _intrinsic("block_dim_z")
    grid_dim_x = _intrinsic("grid_dim_x")
    grid_dim_y = _intrinsic("grid_dim_y")
    grid_dim_z = _intrinsic("grid_dim_z")

    # --- parameters and arrays ---

    def buffer(self, name: str, element: str, align: int = 1) -> Array:
        """A buffer parameter, whose address the caller promises to be aligned."""
        _known(element, tuple(ELEMENTS), "element type")
        if align < 1 or align & (align - 1) or align > 1024:
            raise BuildError(f"align {align}: a power of two, 1 to 1024, is needed")
        self._new_global(name)
        self._params.append(Param(name, element, True, align))
        return Array(name, element, "global", self)

    def scalar(self, name: str, type_: str) -> Variable:
        """A scalar parameter."""
        _known(type_, SCALARS, "scalar type")
        self._new_global(name)
        self._params.append(Param(name, type_))
        return Variable(Var(name), type_)

    def shared(self, name: str, element: str, size: int | None = None) -> Array:
        """An array in shared memory; the dynamic one without a size."""
        _known(element, tuple(ELEMENTS), "element type")
        if size is not None and size < 1:
            raise BuildError(f"shared array '{name}' has {size} elements")
        return self._array(Shared(name, element, size), "shared")

    def local(self, name: str, element: str, size: int) -> Array:
        """An array that each thread has for itself."""
        _known(element, tuple(ELEMENTS), "element type")
        if size < 1:
            raise BuildError(f"local array '{name}' has {size} elements")
        return self._array(Local(name, element, size), "local")

    def constants(self, name: str, element: str, values: Sequence[int | float]) -> Array:
        """An array in constant memory with its values."""
        _known(element, _NUMBERS, "element type of constants")
        for value in values:
            _constant(value, element)
        if not values:
            raise BuildError(f"constants '{name}' have no elements")
        return self._array(Constant(name, element, tuple(values)), "constant")

    def _array(self, array: ir.Array, space: str) -> Array:
        self._new_global(array.name)
        self._arrays.append(array)
        return Array(array.name, array.element, space, self)

    def length(self, array: Array) -> Value:
        """The number of elements of a buffer parameter, of shared memory or of constants."""
        if array.space == "local":
            raise BuildError(f"'{array.name}' is a local array and has no length")
        return Value(Length(array.name), "int32")

    # --- variables ---

    def constant(self, value: int | float | bool, type_: str | None = None) -> Value:
        """A number as an expression, of the type that it has by itself or of another one."""
        return _constant(value, _known(type_ or _default_type(value), SCALARS, "type"))

    def let(self, name: str, type_: str, value: Operand, mutable: bool = False) -> Variable:
        """A new local variable."""
        new = _of(value, _known(type_, SCALARS, "type"))
        self._unused(name, self._frames[-1].names)
        self._append(Let(name, type_, new.expression, mutable))
        self._frames[-1].names.add(name)
        return Variable(Var(name), type_)

    def assign(self, variable: Value, value: Operand) -> None:
        """A new value for a mutable variable."""
        match variable.expression:
            case Var(name) if self._is_mutable(name):
                self._append(Assign(name, _of(value, variable.type).expression))
            case Var(name):
                raise BuildError(f"'{name}' is not mutable here")
            case _:
                raise BuildError("only variables are assigned to; elements are set by a[i] = x")

    def _is_mutable(self, name: str) -> bool:
        for frame in reversed(self._frames):
            if name in frame.names:
                lets = [s for s in frame.statements if isinstance(s, Let) and s.name == name]
                return any(s.mutable for s in lets)
        return False

    # --- blocks ---

    def loop(self, name: str, low: Operand, high: Operand) -> _Loop:
        """``with k.loop("i", 0, n - 1) as i``: both bounds are included."""
        first, last = _of(low, "int32"), _of(high, "int32")
        self._check(first, last)

        def build(body: Block) -> Statement:
            return For(name, first.expression, last.expression, body)

        frame = _Loop(self, f"loop {name}", build, (name,))
        frame.variable = Variable(Var(name), "int32")
        return self._opened(frame)

    def when(self, condition: Operand) -> _Frame:
        """``with k.when(x < y):`` the statements of a branch."""
        asked = _of(condition, "bool")
        self._check(asked)
        return self._opened(_Frame(self, _WHEN, lambda body: If(asked.expression, body)))

    def otherwise(self) -> _Frame:
        """``with k.otherwise():`` the other branch of the ``when`` directly before it."""
        frame = self._frames[-1]
        last = frame.statements[-1] if frame.open_if else None
        if not isinstance(last, If) or self._unentered:
            raise BuildError("otherwise needs a when directly before it")

        def build(body: Block) -> Statement:
            return replace(last, other=body)

        return self._opened(_Frame(self, _OTHERWISE, build))

    def while_(self, condition: Operand) -> _Frame:
        """``with k.while_(x < y):`` the statements of a loop."""
        asked = _of(condition, "bool")
        self._check(asked)
        return self._opened(_Frame(self, "while_", lambda body: While(asked.expression, body)))

    def block(self) -> _Frame:
        """``with k.block():`` a scope of names."""
        return self._opened(_Frame(self, "block", lambda body: body))

    def _opened(self, frame: _AnyFrame) -> _AnyFrame:
        self._entered()
        self._unentered = frame.what
        return frame

    def _entered(self) -> None:
        if self._unentered:
            what, self._unentered = self._unentered, ""
            raise BuildError(f"'{what}' was not entered: write 'with k.{what.split()[0]}(...):'")

    def _enter(self, frame: _Frame) -> None:
        if self._unentered != frame.what:
            raise BuildError(f"'{frame.what}' is entered twice, or after something else")
        self._unentered = ""
        self._frames.append(frame)

    def _leave(self, frame: _Frame, failed: bool) -> None:
        self._frames.pop()
        if failed:
            return
        self._entered()
        outer = self._frames[-1]
        if frame.what == _OTHERWISE:
            outer.statements.pop()  # the `when` without its `otherwise`
        outer.statements.append(frame.build(Block(tuple(frame.statements))))
        outer.open_if = frame.what == _WHEN

    # --- cooperative matrices ---

    def fragment(
        self,
        name: str,
        use: str,
        shape: Shape | str | tuple[int, int, int],
        component: str,
        scope: str = "subgroup",
    ) -> Matrix:
        """A fragment for the rest of the block, all zero."""
        _known(use, USES, "use")
        _known(component, tuple(COMPONENTS), "component")
        fragment = Fragment(use, _shape(shape), component, _known(scope, SCOPES, "scope"))
        self._unused(name, self._frames[-1].fragments)
        self._append(FragmentDecl(name, fragment))
        self._frames[-1].fragments.add(name)
        return Matrix(name, fragment)

    def load(
        self, matrix: Matrix, buffer: Array, index: Operand, stride: Operand, layout: str = "row"
    ) -> None:
        """Load a fragment; ``index`` and ``stride`` are in elements of the buffer."""
        place, line = _of(index, "int32").expression, _of(stride, "int32").expression
        self._reached(buffer, layout)
        self._append(
            FragmentLoad(matrix.name, matrix.fragment, buffer.name, place, line, layout), matrix
        )

    def store(
        self, matrix: Matrix, buffer: Array, index: Operand, stride: Operand, layout: str = "row"
    ) -> None:
        """Store an accumulator."""
        place, line = _of(index, "int32").expression, _of(stride, "int32").expression
        self._reached(buffer, layout)
        if matrix.fragment.use != "accumulator":
            raise BuildError(f"'{matrix.name}' is {matrix.fragment}; only accumulators are stored")
        self._append(
            FragmentStore(matrix.name, matrix.fragment, buffer.name, place, line, layout), matrix
        )

    @staticmethod
    def _reached(buffer: Array, layout: str) -> None:
        _known(layout, LAYOUTS, "layout")
        if buffer.space not in ("global", "shared"):
            raise BuildError(f"'{buffer.name}' is {buffer.space}: no warp can share its elements")

    def muladd(
        self, target: Matrix, a: Matrix, b: Matrix, c: Matrix, config: Config | None = None
    ) -> None:
        """``target = a * b + c``; without a config it is the plain one of the fragments."""
        if config is None:
            left, right, added, result = (x.fragment.component for x in (a, b, c, target))
            of = target.fragment
            config = Config(of.shape, left, right, added, result, scope=of.scope)
        for matrix, fragment in zip((a, b, c, target), config.fragments(), strict=True):
            if matrix.fragment != fragment:
                raise BuildError(f"'{matrix.name}' is {matrix.fragment}, not {fragment}")
        self._append(MulAdd(target.name, a.name, b.name, c.name, config), target, a, b, c)

    # --- the rest ---

    def barrier(self, scope: str = "block") -> None:
        """A barrier of the thread block, or of the warp."""
        self._append(Barrier(_known(scope, ("block", "warp"), "barrier")))

    def return_(self) -> None:
        """The end of the thread."""
        self._append(Return())

    def kernel(self) -> Kernel:
        """The kernel, once all blocks are closed."""
        self._entered()
        if len(self._frames) > 1:
            raise BuildError(f"'{self._frames[-1].what}' is still open")
        body = Block(tuple(self._frames[0].statements))
        return Kernel(self._name, tuple(self._params), body, tuple(self._arrays), self._block)

    def _append(self, statement: Statement, *matrices: Matrix) -> None:
        self._entered()
        for expression in expressions(statement):
            self._visible(expression)
        for matrix in matrices:
            if not any(matrix.name in frame.fragments for frame in self._frames):
                raise BuildError(f"no fragment '{matrix.name}' here: its block has ended")
        self._frames[-1].statements.append(statement)
        self._frames[-1].open_if = False

    def _check(self, *values: Value) -> None:
        for value in values:
            self._visible(value.expression)

    def _visible(self, expression: Expression) -> None:
        known = {p.name for p in self._params}.union(*(f.names for f in self._frames))
        for name in sorted(names(expression) - known):
            raise BuildError(f"no variable '{name}' here: its block has ended")

    def _new_global(self, name: str) -> None:
        self._unused(name, {p.name for p in self._params} | {a.name for a in self._arrays})

    @staticmethod
    def _unused(name: str, taken: set[str]) -> None:
        if name in taken:
            raise BuildError(f"'{name}' is declared twice")

"""The meaning of a kernel in plain NumPy, independent of PTX: what a lowered kernel must compute.

Threads run in warps of 32 lanes in lockstep; expressions are evaluated for all lanes at once, and
their errors count in active lanes only.  Between barriers the warps of a thread block run one after
the other, thread blocks do so too.  What a kernel leaves undefined is an :class:`OracleError` and
never a choice: shared memory that was not written, lanes that store different values to one
element, a barrier or a cooperative matrix without all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .exact import (
    Bounded,
    OracleError,
    Reals,
    arithmetic,
    compare,
    convert,
    decode_floats,
    integers,
    interpret,
    multiply,
)
from .ir import (
    INTRINSICS,
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
    Return,
    Shared,
    Statement,
    Store,
    Unary,
    Var,
    While,
)
from .vocabulary import COMPONENTS, Fragment

__all__ = ["OracleError", "Result", "evaluate"]

Array = NDArray[Any]
Grid = tuple[int, int, int]
Argument = Any

LANES = 32
_FLOATS = ("float16", "bfloat16", "float32", "float64")
#: The NumPy type of each element in the arrays of a caller.
_DTYPES = {
    "int32": "int32", "int64": "int64", "float16": "float16", "bfloat16": "uint16",
    "float32": "float32", "float64": "float64", "uint8": "uint8", "int8": "int8",
    "uint4": "uint8", "int4": "uint8", "bit": "uint8",
}  # fmt: skip
#: Elements that share a byte: how many do.
_PACKED = {"uint4": 2, "int4": 2, "bit": 8}
#: The elements of a buffer that a component can be loaded from or stored to.
_CARRIERS = {
    "f16": ("float16",), "bf16": ("bfloat16",), "tf32": ("float32",), "f32": ("float32",),
    "f64": ("float64",), "u8": ("uint8", "int8"), "s8": ("uint8", "int8"),
    "u4": ("uint4", "int4"), "s4": ("uint4", "int4"), "b1": ("bit",), "u32": ("int32",),
    "s32": ("int32",),
}  # fmt: skip
_RANGES = {"int32": 32, "int64": 64}


@dataclass(frozen=True)
class Result:
    """The buffers after a kernel: arrays of integers, and :class:`Bounded` floating-point ones."""

    buffers: dict[str, Any]


# --- memory ---------------------------------------------------------------------------------------


class _Buffer:
    """An array of elements; integers below a byte are kept one in a byte."""

    def __init__(
        self, name: str, element: str, data: Array | Reals, written: bool, space: str = "global"
    ) -> None:
        self.name, self.element, self.data, self.space = name, element, data, space
        size = len(data.value if isinstance(data, Reals) else data)
        #: which elements were ever written; all those of a parameter were
        self.written = np.full(size, written)
        #: local arrays hold one array per lane, element by element
        self.apart = LANES if space == "local" else 1
        self.length = size // self.apart

    def places(self, index: Array, mask: Array) -> Array:
        """Where active lanes find the elements of their indices."""
        self.check(index[mask])
        place = index * LANES + np.arange(LANES) if self.apart > 1 else index
        return place[mask]

    def check(self, index: Array) -> None:
        """Refuse indices outside of the buffer."""
        wrong = index[(index < 0) | (index >= self.length)]
        if wrong.size:
            raise OracleError(
                f"index {int(wrong.flat[0])} is outside of '{self.name}', which has "
                f"{self.length} elements"
            )

    def read(self, index: Array) -> Array | Reals:
        """The elements at checked indices."""
        unwritten = index[~self.written[index]]
        if unwritten.size:
            where = int(unwritten.flat[0]) // self.apart
            raise OracleError(f"'{self.name}[{where}]' is read before it was written")
        return self.data[index]

    def write(self, index: Array, new: Array | Reals) -> None:
        """New elements at checked indices; one element cannot get two values."""
        self.written[index] = True
        if isinstance(self.data, Reals):
            assert isinstance(new, Reals)
            self.data = self.data.put(index, new)
        else:
            self.data[index] = new
        if np.unique(index).size < index.size and not _same(self.data[index], new):
            raise OracleError(f"one element of '{self.name}' is given different values at once")


def _same(left: Array | Reals, right: Array | Reals) -> bool:
    if isinstance(left, Reals) and isinstance(right, Reals):
        same = np.array_equal(left.value, right.value, equal_nan=True)
        same = same and np.array_equal(np.signbit(left.value), np.signbit(right.value))
        same = same and np.array_equal(left.bound, right.bound)
        return same and bool((left.rationals() == right.rationals()).all())
    return np.array_equal(np.asarray(left), np.asarray(right))


def _unpack(element: str, array: Array) -> Array:
    if element == "bit":
        return np.unpackbits(array, bitorder="little")
    if element in _PACKED:
        return np.stack([array & 15, array >> 4], axis=-1).reshape(-1)
    return array.copy()


def _pack(element: str, data: Array) -> Array:
    if element == "bit":
        return np.packbits(data, bitorder="little")
    if element in _PACKED:
        pairs = data.reshape(-1, 2)
        return np.asarray(pairs[:, 0] | (pairs[:, 1] << 4), dtype=np.uint8)
    return data.copy()


def _buffer(name: str, element: str, argument: Argument) -> _Buffer:
    dtype = _DTYPES[element]
    if not isinstance(argument, np.ndarray) or argument.dtype != dtype or argument.ndim != 1:
        raise ValueError(
            f"'{name}' needs a one-dimensional array of {dtype} for {element} elements"
        )
    if element in _FLOATS:
        reals = decode_floats(element, argument)
        return _Buffer(name, element, Reals(reals.value.copy(), reals.bound), True)
    return _Buffer(name, element, _unpack(element, argument), True)


def _unwritten(name: str, element: str, size: int, space: str) -> _Buffer:
    if element in _FLOATS:
        return _Buffer(name, element, Reals.exactly(np.zeros(size)), False, space)
    dtype = "uint8" if element in _PACKED else _DTYPES[element]
    return _Buffer(name, element, np.zeros(size, dtype=dtype), False, space)


def _constants(array: Constant) -> _Buffer:
    if array.element not in _RANGES and array.element not in ("float32", "float64"):
        raise OracleError(f"'{array.name}': no constants of {array.element}")
    values = [_constant(value, array.element).data[0] for value in array.values]
    if array.element in _RANGES:
        return _Buffer(array.name, array.element, np.array(values), True, "constant")
    reals = Reals.exactly(np.array([v.value for v in values]))
    return _Buffer(array.name, array.element, reals, True, "constant")


# --- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """One value per lane."""

    type: str
    data: Any


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_WRAPPING: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
}  # fmt: skip
_ORDER: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def _constant(value: int | float | bool, type_: str) -> _Value:
    if type_ in _RANGES:
        half = 1 << (_RANGES[type_] - 1)
        if isinstance(value, bool | float) or not -half <= value < half:
            raise OracleError(f"{value!r} is no {type_}")
        return _Value(type_, np.full(LANES, value, dtype=type_))
    if type_ == "bool":
        if not isinstance(value, bool):
            raise OracleError(f"{value!r} is no bool")
        return _Value(type_, np.full(LANES, value))
    if type_ not in ("float32", "float64") or isinstance(value, bool):
        raise OracleError(f"{value!r} is no {type_}")
    with np.errstate(all="ignore"):
        rounded = np.full(LANES, value, dtype=np.float64).astype(type_)
    return _Value(type_, Reals.exactly(rounded))


def _divide(op: str, x: Array, y: Array, mask: Array) -> Array:
    """Quotient or remainder of a division that cuts toward zero, as of C and of PTX."""
    if (y[mask] == 0).any():
        raise OracleError(f"division by zero ({op})")
    pairs = zip(x.tolist(), np.where(mask, y, 1).tolist(), strict=True)
    bits = x.dtype.itemsize * 8
    out = []
    for left, right in pairs:
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        out.append(quotient if op == "div" else left - quotient * right)
    return np.array([_wrap(n, bits) for n in out], dtype=x.dtype)


def _wrap(n: int, bits: int) -> int:
    """The signed number with the low bits of an integer."""
    half = 1 << (bits - 1)
    return (n + half) % (2 * half) - half


def _shift(op: str, x: Array, y: Array) -> Array:
    """PTX clamps the amount, an unsigned number, to the width."""
    bits = x.dtype.itemsize * 8
    far = (y < 0) | (y >= bits)
    amount = np.where(far, 0, y).astype(x.dtype)
    if op == "shl":
        return np.where(far, 0, x << amount).astype(x.dtype)
    return np.where(far, x >> (bits - 1), x >> amount).astype(x.dtype)


class _Thread:
    """What the lanes of a warp can see: their numbers and the memory; evaluates expressions."""

    def __init__(self, buffers: Mapping[str, _Buffer], numbers: Mapping[str, Array]) -> None:
        self.buffers, self.numbers = buffers, numbers
        self.scopes: list[dict[str, _Variable]] = [{}]
        self.fragments: list[dict[str, _Held]] = [{}]

    def variable(self, name: str) -> _Variable:
        """The innermost variable of a name."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise OracleError(f"no variable '{name}'")

    def buffer(self, name: str) -> _Buffer:
        """The buffer of a name."""
        if name not in self.buffers:
            raise OracleError(f"no buffer '{name}'")
        return self.buffers[name]

    def scalars(self, name: str) -> _Buffer:
        """A buffer whose elements can be read and written one by one."""
        buffer = self.buffer(name)
        if buffer.element not in ("int32", "int64", "float32", "float64"):
            raise OracleError(
                f"elements of '{name}' are {buffer.element}, which only cooperative matrices "
                "load and store"
            )
        return buffer

    def value(self, e: Expression, mask: Array, *types: str) -> _Value:
        """The value of an expression, of one of some types if they are given."""
        value = self._value(e, mask)
        if types and value.type not in types:
            raise OracleError(f"{' or '.join(types)} is needed, not {value.type}")
        return value

    def index(self, e: Expression, mask: Array) -> Array:
        """Indices of the lanes, as int64."""
        data: Array = self.value(e, mask, "int32", "int64").data
        return data.astype(np.int64)

    def _value(self, e: Expression, mask: Array) -> _Value:
        match e:
            case Const(value, type_):
                return _constant(value, type_)
            case Var(name):
                variable = self.variable(name)
                return _Value(variable.type, variable.data)
            case Intrinsic(name):
                if name not in INTRINSICS:
                    raise OracleError(f"no intrinsic '{name}'")
                return _Value("int32", self.numbers[name])
            case Length(name):
                buffer = self.buffer(name)
                if buffer.space == "local":
                    raise OracleError(f"'{name}' is a local array and has no length")
                return _Value("int32", np.full(LANES, buffer.length, dtype=np.int32))
            case Element(name, index):
                return self._element(name, index, mask)
            case Cast(type_, operand):
                return self._cast(type_, self._value(operand, mask), mask)
            case Unary("neg", Const(value, type_)) if type_ in _RANGES:
                return _constant(-value, type_)  # so that the least number can be written
            case Unary(op, operand):
                return self._unary(op, self._value(operand, mask))
            case Binary(op, left, right):
                return self._binary(op, left, right, mask)

    def _element(self, name: str, index: Expression, mask: Array) -> _Value:
        buffer = self.scalars(name)
        read = buffer.read(buffer.places(self.index(index, mask), mask))
        if isinstance(read, Reals):
            zeros = Reals.exactly(np.zeros(LANES))
            return _Value(buffer.element, zeros.updated(mask, read))
        data = np.zeros(LANES, dtype=buffer.element)
        data[mask] = read
        return _Value(buffer.element, data)

    def _unary(self, op: str, x: _Value) -> _Value:
        if op == "not" and x.type == "bool":
            return _Value("bool", ~x.data)
        if op == "bitnot" and x.type in _RANGES:
            return _Value(x.type, ~x.data)
        if op == "neg" and x.type in _RANGES:
            return _Value(x.type, np.zeros_like(x.data) - x.data)
        if op == "neg" and isinstance(x.data, Reals):
            centre = None
            if x.data.centre is not None:
                centre = np.array([None if c is None else -c for c in x.data.centre], dtype=object)
            return _Value(x.type, Reals(-x.data.value, x.data.bound, centre))
        raise OracleError(f"no {op} of {x.type}")

    def _binary(self, op: str, left: Expression, right: Expression, mask: Array) -> _Value:
        x = self._value(left, mask)
        if op in ("and", "or"):
            if x.type != "bool":
                raise OracleError(f"no {op} of {x.type}")
            needed = mask & (x.data if op == "and" else ~x.data)
            y = self._value(right, needed)
            if y.type != "bool":
                raise OracleError(f"no {op} of bool and {y.type}")
            return _Value("bool", x.data & y.data if op == "and" else x.data | y.data)
        y = self._value(right, mask)
        if x.type != y.type:
            raise OracleError(f"no {op} of {x.type} and {y.type}")
        if isinstance(x.data, Reals):
            if op in _COMPARISONS:
                return _Value("bool", compare(op, x.data, y.data, mask))
            if op in ("add", "sub", "mul", "div"):
                return _Value(x.type, arithmetic(op, x.data, y.data, x.type))
        elif op in (_COMPARISONS if x.type in _RANGES else ("eq", "ne")):
            return _Value("bool", _ORDER[op](x.data, y.data))
        elif x.type in _RANGES:
            if op in ("div", "mod"):
                return _Value(x.type, _divide(op, x.data, y.data, mask))
            if op in ("shl", "shr"):
                return _Value(x.type, _shift(op, x.data, y.data))
            if op in _WRAPPING:
                with np.errstate(over="ignore"):
                    return _Value(x.type, _WRAPPING[op](x.data, y.data))
        raise OracleError(f"no {op} of {x.type}")

    def _cast(self, type_: str, x: _Value, mask: Array) -> _Value:
        if type_ == "bool":
            if isinstance(x.data, Reals):
                return _Value(type_, compare("ne", x.data, Reals.exactly(np.zeros(LANES)), mask))
            return _Value(type_, x.data != 0)
        if type_ in ("float32", "float64"):
            if isinstance(x.data, Reals):
                return x if x.type == type_ else _Value(type_, convert(x.data, type_))
            return _Value(type_, Reals.exactly(x.data.astype(type_)))
        if type_ not in _RANGES:
            raise OracleError(f"no cast to {type_}")
        if not isinstance(x.data, Reals):
            return _Value(type_, x.data.astype(type_))
        # PTX ISA, cvt: a NaN gives 0 from f32 to a 32-bit integer and the top bit alone otherwise.
        bits = _RANGES[type_]
        nan = 0 if x.type == "float32" and type_ == "int32" else -(1 << (bits - 1))
        return _Value(type_, integers(x.data, bits, nan, mask))


# --- statements -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Variable:
    """A local variable or a scalar parameter, a value per lane."""

    type: str
    mutable: bool
    data: Any


@dataclass(slots=True, eq=False)
class _Held:
    """A fragment with its elements: int64 ones in the range of the component, or reals."""

    fragment: Fragment
    data: Any


def _blend(mask: Array, new: Any, old: Any) -> Any:
    """New values in some lanes."""
    if isinstance(new, Reals):
        return old.updated(mask, new[mask])
    return np.where(mask, new, old)


def _zeros(fragment: Fragment) -> Any:
    shape = (fragment.rows, fragment.columns)
    if COMPONENTS[fragment.component][1]:
        return np.zeros(shape, dtype=np.int64)
    return Reals.exactly(np.zeros(shape))


@dataclass(slots=True)
class _Steps:
    """How many statements may still run."""

    limit: int
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.limit

    def take(self) -> None:
        """Count one."""
        self.left -= 1
        if self.left < 0:
            raise OracleError(f"more than {self.limit} statements were executed")


_Run = Generator[None, None, None]


class _Warp(_Thread):
    """32 lanes that execute a kernel; a generator that stops at the barriers of the block."""

    steps: _Steps
    live: Array

    def run(self, kernel: Kernel) -> _Run:
        """Execute the kernel."""
        yield from self._block(kernel.body, self.live)

    def _block(self, block: Block, mask: Array) -> _Run:
        self.scopes.append({})
        self.fragments.append({})
        for statement in block.statements:
            active = mask & self.live
            if not active.any():
                break
            self.steps.take()
            try:
                yield from self._statement(statement, active)
            except OracleError as error:
                line = getattr(statement, "line", 0)
                if not line or str(error).startswith("line "):
                    raise
                raise OracleError(f"line {line}: {error}") from None
        self.scopes.pop()
        self.fragments.pop()

    def _statement(self, s: Statement, mask: Array) -> _Run:
        match s:
            case Let(name, type_, value, mutable):
                self._declare(name, type_, mutable, self.value(value, mask, type_).data)
            case Assign(name, value):
                self._assign(name, value, mask)
            case Store(name, index, value):
                self._store(name, index, value, mask)
            case If(condition, then, other):
                taken = self.value(condition, mask, "bool").data
                yield from self._block(then, mask & taken)
                if other is not None:
                    yield from self._block(other, mask & ~taken)
            case For():
                yield from self._for(s, mask)
            case While(condition, body):
                while mask.any():
                    self.steps.take()
                    mask = mask & self.value(condition, mask, "bool").data
                    yield from self._block(body, mask)
                    mask = mask & self.live
            case Barrier(scope):
                if (mask != self.live).any():
                    raise OracleError(f"{self._lanes(mask)} execute a barrier")
                if scope == "block":
                    yield
            case Return():
                self.live = self.live & ~mask
            case Block():
                yield from self._block(s, mask)
            case FragmentDecl(name, fragment):
                if name in self.fragments[-1]:
                    raise OracleError(f"fragment '{name}' is declared twice")
                self.fragments[-1][name] = _Held(fragment, _zeros(fragment))
            case FragmentLoad():
                self._load(s, mask)
            case FragmentStore():
                self._save(s, mask)
            case MulAdd():
                self._muladd(s, mask)

    def _lanes(self, mask: Array) -> str:
        return f"{int(mask.sum())} of {int(self.live.sum())} live lanes"

    def _declare(self, name: str, type_: str, mutable: bool, data: Any) -> None:
        if name in self.scopes[-1]:
            raise OracleError(f"variable '{name}' is declared twice")
        self.scopes[-1][name] = _Variable(type_, mutable, data)

    def _assign(self, name: str, value: Expression, mask: Array) -> None:
        variable = self.variable(name)
        if not variable.mutable:
            raise OracleError(f"'{name}' cannot be assigned to")
        variable.data = _blend(mask, self.value(value, mask, variable.type).data, variable.data)

    def _store(self, name: str, index: Expression, value: Expression, mask: Array) -> None:
        buffer = self.scalars(name)
        if buffer.space == "constant":
            raise OracleError(f"'{name}' is constant and cannot be stored to")
        places = buffer.places(self.index(index, mask), mask)
        buffer.write(places, self.value(value, mask, buffer.element).data[mask])

    def _for(self, s: For, mask: Array) -> _Run:
        low, high = self.value(s.low, mask, "int32"), self.value(s.high, mask, "int32")
        at = low.data
        mask = mask & (at <= high.data)
        while mask.any():
            self.steps.take()
            self.scopes.append({})
            self._declare(s.name, low.type, False, at)
            yield from self._block(s.body, mask)
            self.scopes.pop()
            # Asked before the step, which may leave the range of the type.
            mask = mask & self.live & (at < high.data)
            at = np.where(mask, at + mask, at).astype(at.dtype)

    # --- cooperative matrices ---

    def _held(self, name: str, fragment: Fragment | None = None) -> _Held:
        for scope in reversed(self.fragments):
            if name in scope:
                held = scope[name]
                if fragment is not None and held.fragment != fragment:
                    raise OracleError(f"fragment '{name}' is {held.fragment}, not {fragment}")
                return held
        raise OracleError(f"no fragment '{name}'")

    def _all_lanes(self, mask: Array) -> None:
        if not mask.all():
            raise OracleError(f"{int(mask.sum())} of 32 lanes execute a cooperative matrix")

    def _uniform(self, what: str, e: Expression, mask: Array) -> int:
        data = self.index(e, mask)
        if (data != data[0]).any():
            raise OracleError(f"the {what} of a cooperative matrix differs between lanes")
        return int(data[0])

    def _places(self, s: FragmentLoad | FragmentStore, mask: Array) -> tuple[_Buffer, Array]:
        """The buffer, and the index of each element of the matrix."""
        self._all_lanes(mask)
        buffer, fragment = self.buffer(s.buffer), s.fragment
        if buffer.space not in ("global", "shared"):
            raise OracleError(f"'{s.buffer}' is {buffer.space}: no warp can share its elements")
        if buffer.element not in _CARRIERS[fragment.component]:
            raise OracleError(
                f"'{s.buffer}' has {buffer.element} elements, which are no {fragment.component}"
            )
        if s.layout not in ("row", "col"):
            raise OracleError(f"no layout '{s.layout}'")
        index, stride = (
            self._uniform("index", s.index, mask),
            self._uniform("stride", s.stride, mask),
        )
        rows = np.arange(fragment.rows).astype(object)[:, None]
        columns = np.arange(fragment.columns).astype(object)[None, :]
        lines, inner = (rows, columns) if s.layout == "row" else (columns, rows)
        places = index + lines * stride + inner
        buffer.check(places)
        return buffer, places.astype(np.int64)

    def _load(self, s: FragmentLoad, mask: Array) -> None:
        held = self._held(s.name, s.fragment)
        buffer, places = self._places(s, mask)
        read = buffer.read(places)
        held.data = read if isinstance(read, Reals) else interpret(s.fragment.component, read)

    def _save(self, s: FragmentStore, mask: Array) -> None:
        held = self._held(s.name, s.fragment)
        if s.fragment.use != "accumulator":
            raise OracleError(f"'{s.name}' is {s.fragment}; only accumulators are stored")
        buffer, places = self._places(s, mask)
        data = held.data
        if not isinstance(data, Reals):
            data = interpret("s32", data).astype(_DTYPES[buffer.element])
        buffer.write(places, data)

    def _muladd(self, s: MulAdd, mask: Array) -> None:
        self._all_lanes(mask)
        names = (s.a, s.b, s.c, s.target)
        held = [self._held(n, f) for n, f in zip(names, s.config.fragments(), strict=True)]
        if s.config.scope != "subgroup":
            raise OracleError(f"scope {s.config.scope}: a warp holds fragments of a subgroup only")
        held[3].data = multiply(s.config, *(h.data for h in held[:3]))


# --- kernels --------------------------------------------------------------------------------------


def evaluate(
    kernel: Kernel,
    arguments: Mapping[str, Argument],
    *,
    grid: Grid = (1, 1, 1),
    block: Grid | None = None,
    dynamic: int = 0,
    steps: int = 1_000_000,
) -> Result:
    """What a kernel leaves in its buffers.

    Arguments are scalars and one-dimensional NumPy arrays, which are not changed: bfloat16 as
    uint16 patterns; uint4 and int4 as uint8 with two elements a byte, the low half first; bit as
    uint8, the lowest bit first.  ``dynamic`` is the number of elements of the dynamic shared array.
    ValueError if the arguments or the launch do not fit the kernel, :class:`OracleError` if what
    the kernel does is undefined or takes more than ``steps`` statements.
    """
    size = _block_size(kernel, block)
    if len(grid) != 3 or min(grid) < 1:
        raise ValueError(f"grid {grid}: three positive numbers are needed")
    scalars, buffers = _arguments(kernel, arguments)
    allowed = _Steps(steps)
    for z, y, x in np.ndindex(grid[2], grid[1], grid[0]):
        shared = buffers | _shared_arrays(kernel, dynamic)
        warps = []
        for first in range(0, prod(size), LANES):
            numbers, live = _numbers(first, size, (x, y, z), grid)
            warp = _Warp(shared | _local_arrays(kernel), numbers)
            warp.steps, warp.live = allowed, live
            for name, value in scalars.items():
                warp.scopes[0][name] = _Variable(value.type, False, value.data)
            warps.append(warp.run(kernel))
        while warps:
            warps = [w for w in warps if next(w, _ENDED) is not _ENDED]
    return Result({name: _outcome(b) for name, b in buffers.items()})


_ENDED = object()


def _block_size(kernel: Kernel, block: Grid | None) -> Grid:
    size = block or kernel.block
    if size is None:
        raise ValueError("the kernel has no thread block, and none is given")
    if kernel.block is not None and size != kernel.block:
        raise ValueError(f"the thread block of the kernel is {kernel.block}, not {size}")
    if len(size) != 3 or min(size) < 1:
        raise ValueError(f"block {size}: three positive numbers are needed")
    return size


def _arguments(
    kernel: Kernel, arguments: Mapping[str, Argument]
) -> tuple[dict[str, _Value], dict[str, _Buffer]]:
    names = [p.name for p in kernel.params]
    for what, wrong in (
        ("missing", [n for n in names if n not in arguments]),
        ("not of the kernel", [n for n in arguments if n not in names]),
    ):
        if wrong:
            raise ValueError(f"arguments {what}: {', '.join(wrong)}")
    scalars, buffers = {}, {}
    for p in kernel.params:
        if p.buffer:
            buffers[p.name] = _buffer(p.name, p.type, arguments[p.name])
        else:
            scalars[p.name] = _scalar(p.name, p.type, arguments[p.name])
    return scalars, buffers


def _scalar(name: str, type_: str, argument: Argument) -> _Value:
    value = argument.item() if isinstance(argument, np.generic) else argument
    try:
        if not isinstance(value, bool | int | float):
            raise OracleError(f"a {type(argument).__name__} is no {type_}")
        return _constant(value, type_)
    except OracleError as error:
        raise ValueError(f"argument '{name}': {error}") from None


def _shared_arrays(kernel: Kernel, dynamic: int) -> dict[str, _Buffer]:
    open_ = [s.name for s in kernel.shared if s.size is None]
    if len(open_) > 1:
        raise ValueError(f"more than one dynamic shared array: {', '.join(open_)}")
    if dynamic < 0 or (dynamic and not open_):
        raise ValueError(f"{dynamic} elements for a dynamic shared array")
    found = {}
    for array in kernel.arrays:
        if isinstance(array, Shared):
            size = dynamic if array.size is None else array.size
            found[array.name] = _unwritten(array.name, array.element, size, "shared")
        elif isinstance(array, Constant):
            found[array.name] = _constants(array)
    return found


def _local_arrays(kernel: Kernel) -> dict[str, _Buffer]:
    return {
        a.name: _unwritten(a.name, a.element, a.size * LANES, "local")
        for a in kernel.arrays
        if isinstance(a, Local)
    }


def _numbers(first: int, size: Grid, at: Grid, grid: Grid) -> tuple[dict[str, Array], Array]:
    """The intrinsics of the lanes of a warp, and which of them exist."""
    number = first + np.arange(LANES)
    threads = (number % size[0], number // size[0] % size[1], number // (size[0] * size[1]))
    found: dict[str, Array] = {}
    for axis, x, y, n, m in zip("xyz", threads, at, size, grid, strict=True):
        values = {"thread_idx": x, "block_idx": y, "block_dim": n, "grid_dim": m}
        for name, value in values.items():
            found[f"{name}_{axis}"] = np.full(LANES, value, dtype=np.int32)
    return found, number < prod(size)


def _outcome(buffer: _Buffer) -> Any:
    if isinstance(buffer.data, Reals):
        return Bounded(buffer.element, buffer.data)
    return _pack(buffer.element, buffer.data)

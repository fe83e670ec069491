"""The kernel IR that the lowering of cooperative matrices consumes.

Typed, side-effect free expressions and a few statements, enough for kernels with cooperative
matrices.  ``for`` counts up to its bound inclusively.  Index and stride of a cooperative-matrix
statement are in elements of its buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from .vocabulary import Config, Fragment

__all__ = [
    "BINARY",
    "ELEMENTS",
    "INTRINSICS",
    "SCALARS",
    "UNARY",
    "Array",
    "Assign",
    "Barrier",
    "Binary",
    "Block",
    "Cast",
    "Const",
    "Constant",
    "Element",
    "Expression",
    "For",
    "FragmentDecl",
    "FragmentLoad",
    "FragmentStore",
    "If",
    "Intrinsic",
    "Kernel",
    "Length",
    "Let",
    "Local",
    "MulAdd",
    "Param",
    "Return",
    "Shared",
    "Statement",
    "Store",
    "Unary",
    "Var",
    "While",
]

#: Bits of the elements of buffers.  Those without arithmetic of their own (float16, bfloat16, int8,
#: uint8 and below) enter and leave through cooperative-matrix statements.
ELEMENTS: dict[str, int] = {
    "int32": 32, "int64": 64, "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64,
    "uint8": 8, "int8": 8, "uint4": 4, "int4": 4, "bit": 1,
}  # fmt: skip

#: The types of expressions.
SCALARS = ("int32", "int64", "float32", "float64", "bool")

BINARY = (
    "add", "sub", "mul", "div", "mod", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "shl",
    "shr", "bitand", "bitor", "bitxor",
)  # fmt: skip
UNARY = ("neg", "not", "bitnot")

#: What a thread can ask about itself; all are int32.
INTRINSICS = (
    "thread_idx_x", "thread_idx_y", "thread_idx_z", "block_idx_x", "block_idx_y", "block_idx_z",
    "block_dim_x", "block_dim_y", "block_dim_z", "grid_dim_x", "grid_dim_y", "grid_dim_z",
)  # fmt: skip


# --- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    """A literal."""

    value: int | float | bool
    type: str = "int32"


@dataclass(frozen=True, slots=True)
class Var:
    """A local variable or a scalar parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    """``op`` of two values of one type; comparisons give bool."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Unary:
    """``op`` of a value."""

    op: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Cast:
    """The value in another type."""

    type: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a buffer."""

    buffer: str
    index: Expression


@dataclass(frozen=True, slots=True)
class Length:
    """The number of elements of a buffer parameter."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A number of the executing thread, such as ``thread_idx_x``."""

    name: str


Expression: TypeAlias = "Const | Var | Binary | Unary | Cast | Element | Length | Intrinsic"


# --- statements -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    """A statement; ``line`` is its line in a text, 0 without one, and no part of its value."""

    line: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Let(_Placed):
    """A new local variable."""

    name: str
    type: str
    value: Expression
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Assign(_Placed):
    """A new value for a mutable variable."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Store(_Placed):
    """A new value for an element of a buffer."""

    buffer: str
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class If(_Placed):
    """One of two blocks."""

    condition: Expression
    then: Block
    other: Block | None = None


@dataclass(frozen=True, slots=True)
class For(_Placed):
    """A loop over ``low .. high``, both included."""

    name: str
    low: Expression
    high: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class While(_Placed):
    """A loop while a condition holds."""

    condition: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class Barrier(_Placed):
    """A barrier of the thread block, or of the warp."""

    scope: str = "block"


@dataclass(frozen=True, slots=True)
class Return(_Placed):
    """The end of the thread."""


@dataclass(frozen=True, slots=True)
class Block(_Placed):
    """Statements in order; names live to its end."""

    statements: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class FragmentDecl(_Placed):
    """A fragment for the rest of the block; accumulators start as zero."""

    name: str
    fragment: Fragment


@dataclass(frozen=True, slots=True)
class FragmentLoad(_Placed):
    """``(r, c)`` of the fragment from ``index + r * stride + c`` (row) or ``+ c * stride + r``."""

    name: str
    fragment: Fragment
    buffer: str
    index: Expression
    stride: Expression
    layout: str


@dataclass(frozen=True, slots=True)
class FragmentStore(_Placed):
    """The inverse of :class:`FragmentLoad`."""

    name: str
    fragment: Fragment
    buffer: str
    index: Expression
    stride: Expression
    layout: str


@dataclass(frozen=True, slots=True)
class MulAdd(_Placed):
    """``target = a * b + c`` of fragments."""

    target: str
    a: str
    b: str
    c: str
    config: Config


Statement: TypeAlias = (
    "Let | Assign | Store | If | For | While | Barrier | Return | Block | FragmentDecl"
    " | FragmentLoad | FragmentStore | MulAdd"
)


# --- kernels --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: a scalar, or a buffer in global memory with its length.

    ``align`` is what the caller promises of the address of a buffer, in bytes.
    """

    name: str
    type: str
    buffer: bool = False
    align: int = 1


@dataclass(frozen=True, slots=True)
class Shared:
    """An array in shared memory; without a size it is the dynamic one."""

    name: str
    element: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Local:
    """An array that each thread has for itself."""

    name: str
    element: str
    size: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An array in constant memory with its values."""

    name: str
    element: str
    values: tuple[int | float, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return len(self.values)


Array: TypeAlias = "Shared | Local | Constant"


@dataclass(frozen=True)
class Kernel:
    """A kernel; ``block`` is its thread block, where it is known."""

    name: str
    params: tuple[Param, ...]
    body: Block
    arrays: tuple[Array, ...] = ()
    block: tuple[int, int, int] | None = None

    @property
    def shared(self) -> tuple[Shared, ...]:
        """The arrays in shared memory."""
        return tuple(a for a in self.arrays if isinstance(a, Shared))

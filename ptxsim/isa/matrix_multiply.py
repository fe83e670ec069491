"""Matrix multiply-accumulate (PTX ISA 9.1, Warp Level Matrix Instructions: mma, mma.sp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..matrix import Fragment, mma_a, mma_b, mma_c, parse_shape
from ..numerics.dot_product import float_product, integer_product
from ..numerics.formats import FORMATS
from ._mma_forms import dense_forms, element_bits, sparse_forms
from .protocol import Array, Registers, Step
from .record import Mods, instruction
from .warp_matrix import MatrixCollective, whole_warps

__all__ = ["Product", "multiply_step", "product"]

_SECTION = "Warp Level Matrix Instructions: "

#: Tiles A, B and C to the tile D, all as stacks of bit patterns.
Product: TypeAlias = Callable[[Array, Array, Array], Array]


def product(a_type: str, b_type: str, c_type: str, d_type: str, satfinite: bool) -> Product:
    """The arithmetic of a multiply-accumulate for these element types."""
    if d_type == "s32":
        a_signed, b_signed = a_type[0] == "s", b_type[0] == "s"

        def integers(a: Array, b: Array, c: Array) -> Array:
            return integer_product(
                a, b, c, a_signed=a_signed, b_signed=b_signed, saturate=satfinite
            )

        return integers
    factors, accumulator, result = FORMATS[a_type], FORMATS[c_type], FORMATS[d_type]

    def floats(a: Array, b: Array, c: Array) -> Array:
        return float_product(a, b, c, factors=factors, accumulator=accumulator, result=result)

    return floats


def multiply_step(
    b: Any, fragments: tuple[Fragment, Fragment, Fragment, Fragment], f: Product
) -> Step:
    """The step ``d = f(a, b, c)`` for the fragments of a, b, c and d."""
    fragment_a, fragment_b, fragment_c, fragment_d = fragments
    places_a, places_b, places_c = b.sources("a"), b.sources("b"), b.sources("c")
    writes = b.writes("d")
    site = b.site

    def step(r: Registers, g: Any) -> None:
        w = whole_warps(g, site)
        tile = f(
            fragment_a.gather([w.spread(r[s]) for s in places_a]),
            fragment_b.gather([w.spread(r[s]) for s in places_b]),
            fragment_c.gather([w.spread(r[s]) for s in places_c]),
        )
        for write, register in zip(writes, fragment_d.scatter(tile), strict=True):
            write(r, w.collect(register), None)

    return step


class _Mma(MatrixCollective):
    """Register types and counts, which follow from shape and element types."""

    #: A holds this part of its elements (sparse: half)
    kept = 1

    def check(self, m: Mods) -> str | None:
        """Only m8n8k4 of f16 takes other layouts than ``.row.col``."""
        if (m.alayout, m.blayout) != ("row", "col") and not (
            m.shape == "m8n8k4" and m.atype == "f16"
        ):
            return f"the layouts .{m.alayout}.{m.blayout} are not legal here; use .row.col"
        return None

    def a_register(self, m: Mods) -> str:
        return "f64" if m.atype == "f64" else "b32"

    b_register = a_register

    def d_register(self, m: Mods) -> str:
        return "f16x2" if m.dtype == "f16" else m.dtype

    def c_register(self, m: Mods) -> str:
        return "f16x2" if m.ctype == "f16" else m.ctype

    def a_count(self, m: Mods) -> int:
        rows, _, k = parse_shape(m.shape)
        return self._factor_count(m, rows * k) // self.kept

    def b_count(self, m: Mods) -> int:
        _, columns, k = parse_shape(m.shape)
        return self._factor_count(m, columns * k)

    def _factor_count(self, m: Mods, elements: int) -> int:
        if m.shape == "m8n8k4" and m.atype == "f16":
            return 2  # four products at once
        return elements * element_bits(m) // (32 * (64 if m.atype == "f64" else 32))

    def d_count(self, m: Mods) -> int:
        return self._accumulator_count(m, m.dtype)

    def c_count(self, m: Mods) -> int:
        return self._accumulator_count(m, m.ctype)

    def _accumulator_count(self, m: Mods, type_: str) -> int:
        rows, columns, _ = parse_shape(m.shape)
        products = 4 if m.shape == "m8n8k4" and m.atype == "f16" else 1
        return products * rows * columns // (64 if type_ == "f16" else 32)


@instruction("mma", isa=_SECTION + "mma", floor="6.4+sm_70")
class Mma(_Mma):
    """D = A * B + C on one tile a warp."""

    forms = dense_forms()

    def bind(self, b: Any) -> Step:
        m = b.mods
        rows, _, k = parse_shape(m.shape)
        bits = element_bits(m)
        accumulator = mma_c(rows, 16 if m.dtype == "f16" else 32)
        fragments = (mma_a(rows, k, bits), mma_b(k, bits), accumulator, accumulator)
        f = product(m.atype, m.btype, m.ctype, m.dtype, bool(m.satfinite))
        return multiply_step(b, fragments, f)


@instruction("mma.sp", isa=_SECTION + "mma.sp", floor="7.1+sm_80")
class MmaSparse(_Mma):
    """D = A * B + C with half of the elements of A."""

    kept = 2
    forms = sparse_forms()

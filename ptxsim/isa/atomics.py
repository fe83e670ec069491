"""Atomic operations (PTX ISA 9.1, Parallel Synchronization and Communication: atom, red)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..numerics import comparison, floating, integer, select
from ..numerics.formats import F32
from ..targets import Floor
from ..types import SCALAR_TYPES
from .floating_point import lanewise
from .order import MemoryOrder
from .protocol import Array, BoolArray, Registers, Site, Step
from .record import Form, Instruction, Mods, instruction

__all__ = ["operation"]

_P = "Parallel Synchronization and Communication Instructions: "

_SEM = "sem?:{relaxed@6.0+sm_70 acquire@6.0+sm_70 release@6.0+sm_70 acq_rel@6.0+sm_70}"
_SCOPE = "scope?:{cta@5.0+sm_60 gpu@5.0+sm_60 sys@5.0+sm_60 cluster@7.8+sm_90}"
_SPACE = "space?:{global shared shared::cta@7.8 shared::cluster@7.8+sm_90}"
_HEAD = f"{_SEM} {_SCOPE} {_SPACE}"
_HINT = "hint?:{L2::cache_hint@7.4+sm_80}"


def _inc(old: Array, b: Array) -> Array:
    return select(old >= b, np.uint32(0), old + np.uint32(1))


def _dec(old: Array, b: Array) -> Array:
    return select((old == 0) | (old > b), b, old - np.uint32(1))


def _cas_pairs(old: Array, b: Array, c: Array) -> Array:
    """Compare and swap of 128-bit words, which are rows of two."""
    return select((old == b).all(axis=-1, keepdims=True), c, old)


def _add_by_window(old: Array, b: Array, shared: Array) -> Array:
    """Sums of f32 at generic addresses: subnormal numbers stay in shared memory alone."""
    kept = floating.add(old, b, fmt=F32)
    return select(shared, kept, floating.add(old, b, fmt=F32, ftz=True))


def operation(m: Mods, space: str = "global") -> tuple[Callable[..., Array], str]:
    """The function from old value and operands to the new one, and its scan name.

    Sums of f32 flush subnormal numbers unless they are in shared memory (PTX ISA 9.1, atom).
    """
    t = SCALAR_TYPES[m.type]
    if m.op == "inc":
        return _inc, ""
    if m.op == "dec":
        return _dec, ""
    if m.op in ("and", "or", "xor"):
        ufunc = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[m.op]
        return ufunc, m.op
    if m.op == "exch":
        return (lambda old, b: b + np.zeros_like(old)), "exch"
    if m.op == "cas" and m.type == "b128":
        return _cas_pairs, ""
    if m.op == "cas":
        return (lambda old, b, c: select(old == b, c, old)), ""
    if t.kind in ("f", "a"):
        if m.op == "add":
            if m.type == "f32":
                return partial(floating.add, fmt=F32, ftz=space != "shared"), ""
            return lanewise(floating.add, m.type), ""
        return lanewise(comparison.min_ if m.op == "min" else comparison.max_, m.type), ""
    if m.op == "add":
        return np.add, "add"
    function = integer.min_ if m.op == "min" else integer.max_
    name = m.op + ("_s" if t.signed else "_u")
    return partial(function, width=t.bits, signed=t.signed), name


class _Atomic(Instruction):
    needs_defined = True
    propagates = ("b", "c")
    receives = "d"
    traps = ("misaligned", "oob", "uninit-global", "write-to-readonly")

    def waits(self, m: Mods) -> bool:
        return True

    def lane_matters(self, m: Mods) -> bool:
        return True

    def memory_order(self, m: Mods) -> MemoryOrder:
        """Relaxed and of scope gpu unless it says otherwise (PTX ISA 9.1, atom, red)."""
        return MemoryOrder(
            str(m.scope) or "gpu", m.sem in ("acquire", "acq_rel"), m.sem in ("release", "acq_rel"),
            atomic=True, reads=self.name == "atom",
        )  # fmt: skip

    def check(self, m: Mods) -> str | None:
        """Cache policies are for global memory (measured)."""
        if m.hint and m.space.startswith("shared"):
            return f".{m.hint} is not legal with .{m.space}"
        return None

    def combined_floor(self, m: Mods) -> tuple[str, Floor] | None:
        """128-bit atomics of system scope came later than the others (measured)."""
        if m.type == "b128" and m.scope == "sys":
            return "sys.b128", Floor.parse("8.4")
        return None

    def definedness(self, b: Any) -> Step | None:
        """Undefined bits of the operands go to memory, of a vector element by element."""
        operands = [b.unknown(name) for name in ("b", "c") if b.has(name)]
        marks = b.marks("d") if b.has("d") else []
        guard = b.guard()

        def step(r: Registers, g: Any) -> None:
            found = [entry for unknown in operands for entry in unknown(r, g) or ()]
            for mark in marks:
                mark(g, None, g.mask(guard(r)))
            g.storing = found or None

        return step

    def bind(self, b: Any) -> Step:
        m = b.mods
        size = SCALAR_TYPES[m.type].size
        space = b.space("a", m.space)
        function, scan = operation(m, space)
        names = ["b", "c"] if b.has("c") else ["b"]
        elements = list(zip(*(b.sources(name) for name in names), strict=True))
        address = b.address("a")
        guard = b.guard()
        site = b.site
        writes = b.writes("d") if b.has("d") else []
        only_global = bool(m.get("vec"))
        by_window = space == "generic" and (m.op, m.type) == ("add", "f32") and not only_global

        def step(r: Registers, g: Any) -> None:
            mask = g.mask(guard(r))
            at = address(r, g)
            if only_global and space != "global":
                _check_global(g, space, at, mask, site)
            values = [[r[s] for s in sources] for sources in elements]
            apply = function
            if by_window:
                shared = g.in_window("shared", at)
                if shared.any():
                    apply, values = _add_by_window, [[*values[0], shared]]
            found = g.atomic(space, at, size, apply, values, mask, site, scan)
            for write, old in zip(writes, found, strict=False):  # the sink is one for all
                write(r, old, mask)

        return step


def _check_global(g: Any, space: str, address: Array, mask: BoolArray | None, site: Site) -> None:
    """Atomics of vectors are for global memory, also by a generic address (PTX ISA 9.1, atom)."""
    at = g.full(address.astype(np.uint64))
    bad = ~g.in_window("global", at) if space == "generic" else np.ones(g.n, bool)
    if mask is not None:
        bad &= mask
    if bad.any():
        g.finding(
            "oob-global", f"the address of '{site.text}' is not in global memory", site, bad,
            fatal=True,
        )  # fmt: skip


def _forms(result: str) -> tuple[Form, ...]:
    cache = ", cache.u64?hint"
    one = f"{result}[a], b.type{cache}"
    return (
        Form(f"{_HEAD} op:{{and or xor}} {_HINT} type:{{b32 b64@3.1+sm_32}}", one),
        Form(f"{_HEAD} op:{{add}} {_HINT} type:{{u32 s32 u64}}", one),
        Form(f"{_HEAD} op:{{add}} {_HINT} type:{{f32}}", one, floor="2.0+sm_20"),
        Form(f"{_HEAD} op:{{add}} {_HINT} type:{{f64}}", one, floor="5.0+sm_60"),
        Form(f"{_HEAD} op:{{inc dec}} {_HINT} type:{{u32}}", one),
        Form(f"{_HEAD} op:{{min max}} {_HINT} type:{{u32 s32 u64@3.1+sm_32 s64@3.1+sm_32}}", one),
        Form(f"{_HEAD} op:{{add}} noftz {_HINT} type:{{f16x2}}", one, floor="6.2+sm_60"),
        Form(f"{_HEAD} op:{{add}} noftz {_HINT} type:{{f16}}", one, floor="6.3+sm_70"),
        Form(f"{_HEAD} op:{{add}} noftz {_HINT} type:{{bf16 bf16x2}}", one, floor="7.8+sm_90"),
    )  # fmt: skip


def _vector_forms(result: str) -> tuple[Form, ...]:
    return tuple(
        Form(
            f"{_SEM} {_SCOPE} space?:{{global}} {what}",
            f"{result}[a], b.type*vec, cache.u64?hint",
            floor="8.1+sm_90",
        )
        for what in (
            f"op:{{add min max}} noftz {_HINT} vec:{{v2 v4 v8}} type:{{f16 bf16}}",
            f"op:{{add min max}} noftz {_HINT} vec:{{v2 v4}} type:{{f16x2 bf16x2}}",
            f"op:{{add}} {_HINT} vec:{{v2 v4}} type:{{f32}}",
        )
    )


@instruction("atom", isa=_P + "atom", floor="1.1")
class Atom(_Atomic):
    """Read, operate and write as one; the old value is the result."""

    forms = (
        *_forms("=~d.type, "),
        *_vector_forms("=~d.type*vec, "),
        *_vector_forms("@sink, "),
        Form(
            f"{_HEAD} op:{{exch}} {_HINT} type:{{b32 b64}}",
            "=~d.type, [a], b.type, cache.u64?hint",
        ),
        Form(
            f"{_HEAD} op:{{cas}} type:{{b16@6.3+sm_70 b32 b64}}", "=~d.type, [a], b.type, c.type"
        ),
        Form(
            f"{_HEAD} op:{{exch}} {_HINT} type:{{b128}}", "=~d.type, [a], b.type, cache.u64?hint",
            floor="8.3+sm_90",
        ),
        Form(
            f"{_HEAD} op:{{cas}} {_HINT} type:{{b128}}",
            "=~d.type, [a], b.type, c.type, cache.u64?hint",
            floor="8.3+sm_90",
        ),
    )  # fmt: skip


@instruction("red", isa=_P + "red", floor="1.2")
class Red(_Atomic):
    """The operation of atom without a result."""

    forms = (*_forms(""), *_vector_forms(""))

    def check(self, m: Mods) -> str | None:
        """A red has no result to acquire with (PTX ISA 9.1, red)."""
        if m.sem in ("acquire", "acq_rel"):
            return f".{m.sem} is not legal here: .relaxed or .release"
        return super().check(m)

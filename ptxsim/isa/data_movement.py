"""Moves, loads, stores and addresses (PTX ISA 9.1, Data Movement and Conversion Instructions)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..targets import Floor
from ..types import SCALAR_TYPES, bits_dtype
from ..windows import window_base
from .definedness import Rule, from_low_bits, moved
from .order import WEAK, MemoryOrder
from .protocol import Array, Registers, Step, no_effect
from .record import Form, Instruction, Mods, Pure, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "

_ALL = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_CACHE = (
    "evict?:{"
    + " ".join(
        f"L1::{word}@7.4+sm_70"
        for word in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
    )
    + "} l2evict?:{"
    + " ".join(f"L2::{w}@8.8+sm_100" for w in ("evict_last", "evict_normal", "evict_first"))
    + "} hint?:{L2::cache_hint@7.4+sm_80}"
)
_PREFETCH = "prefetch?:{L2::64B@7.4+sm_75 L2::128B@7.4+sm_75 L2::256B@7.4+sm_80}"
_SCOPES = "scope?:{cta gpu sys cluster@7.8+sm_90}"


@instruction("mov", isa=_SECTION + "mov")
class Mov(Pure):
    """Copy a register, constant, address or special register."""

    copies = True

    forms = (
        Form("type:{pred}", "=d.type, !a.type", floor="1.0"),
        Form("type:{b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64}", "=d.type, a.type"),
        Form("type:{b128}", "=d.type, a.type", floor="8.3+sm_70"),
    )

    def check_symbol(self, name: str, space: str, m: Mods) -> str | None:
        """Here an address becomes a value."""
        return None

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return _same

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m))


def _same(a: Array) -> Array:
    return a


class _Packing(Pure):
    """Between one register and a brace group; element 0 is the lowest."""

    parts = 2

    def part(self, m: Mods) -> str:
        return f"b{SCALAR_TYPES[m.type].bits // self.parts}"

    def number(self, m: Mods) -> int:
        return self.parts


class _Pack(_Packing):
    """Pack a brace group into a register."""

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        bits = SCALAR_TYPES[m.type].bits
        dtype = bits_dtype(bits)
        step = bits // self.parts
        if bits == 128:
            return _pack128

        def pack(*elements: Array) -> Array:
            out = elements[0].astype(dtype)
            for k, element in enumerate(elements[1:], 1):
                out = out | (element.astype(dtype) << dtype.type(step * k))
            return out

        return pack

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m))


def _pack128(*elements: Array) -> Array:
    if len(elements) == 4:
        low = elements[0].astype(np.uint64) | (elements[1].astype(np.uint64) << np.uint64(32))
        high = elements[2].astype(np.uint64) | (elements[3].astype(np.uint64) << np.uint64(32))
    else:
        low, high = elements
    return np.stack(np.broadcast_arrays(low, high))


class _Unpack(_Packing):
    """Unpack a register into a brace group; ``_`` drops an element."""

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        bits = SCALAR_TYPES[m.type].bits
        step = bits // self.parts
        narrow = bits_dtype(step)
        parts = self.parts
        if bits == 128:
            return _unpack128_2 if parts == 2 else _unpack128_4
        wide = bits_dtype(bits)

        def unpack(a: Array) -> tuple[Array, ...]:
            return tuple((a >> wide.type(step * k)).astype(narrow) for k in range(parts))

        return unpack

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m))


def _unpack128_2(a: Array) -> tuple[Array, ...]:
    return a[0], a[1]


def _unpack128_4(a: Array) -> tuple[Array, ...]:
    shift = np.uint64(32)
    return tuple((w >> s).astype(np.uint32) for w in (a[0], a[1]) for s in (np.uint64(0), shift))


_PACKABLE = "type:{b16@1.0 b32 b64 b128@8.3+sm_70}"


@instruction("mov", isa=_SECTION + "mov")
class MovPack2(_Pack):
    """Pack two elements."""

    forms = (Form(_PACKABLE, "=d.type, a.part*number"),)


@instruction("mov", isa=_SECTION + "mov")
class MovUnpack2(_Unpack):
    """Unpack two elements."""

    forms = (Form(_PACKABLE, "=~d.part*number, a.type"),)


@instruction("mov", isa=_SECTION + "mov")
class MovPack4(_Pack):
    """Pack four elements."""

    parts = 4
    forms = (Form("type:{b32 b64 b128@8.3+sm_70}", "=d.type, a.part*number"),)


@instruction("mov", isa=_SECTION + "mov")
class MovUnpack4(_Unpack):
    """Unpack four elements."""

    parts = 4
    forms = (Form("type:{b32 b64 b128@8.3+sm_70}", "=~d.part*number, a.type"),)


@instruction("mov", isa=_SECTION + "mov")
class MovVector(Pure):
    """Copy a vector, also of a special register, element by element."""

    # Measured with ptxas 13.0: elements of 16 bits and more, 128 bits in all.
    forms = (
        Form(
            "vec:{v2 v4} type:{b16 u16 s16 b32 u32 s32 f32}",
            "=~d.type*vec, a.type*vec",
        ),
        Form("vec:{v2} type:{b64 u64 s64 f64}", "=~d.type*vec, a.type*vec"),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return lambda *components: components

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m))


# --- loads ----------------------------------------------------------------------------------------


class _Memory(Instruction):
    needs_defined = True
    traps = ("misaligned", "oob", "uninit-global", "write-to-readonly")

    def is_strong(self, m: Mods) -> bool:
        """Whether other threads' writes are meant to be seen (a wait loop may spin on it)."""
        return m.order not in ("", "weak")

    def waits(self, m: Mods) -> bool:
        return self.is_strong(m)

    def memory_order(self, m: Mods) -> MemoryOrder:
        """Volatile is relaxed at system scope (PTX ISA 9.1, Memory Consistency Model: Scope)."""
        if not self.is_strong(m):
            return WEAK
        scope = str(m.scope) or "sys"
        return MemoryOrder(scope, m.order == "acquire", m.order == "release")

    def combined_floor(self, m: Mods) -> tuple[str, Floor] | None:
        """256-bit vectors, and volatile accesses to local memory, came late (measured)."""
        if m.vec == "v4" and SCALAR_TYPES[m.type].bits == 64:
            return f"v4.{m.type}", Floor.parse("8.8+sm_100")
        if m.type == "b128" and m.scope == "sys":
            return "sys.b128", Floor.parse("8.4")
        if m.order == "volatile" and m.space == "local":
            return "volatile.local", Floor.parse("9.1")
        return None

    def check(self, m: Mods) -> str | None:
        """Scope and order go together; 256-bit vectors are global (PTX ISA, ld, st)."""
        if m.order in ("relaxed", "acquire", "release") and not m.scope:
            return f".{m.order} needs a scope: .cta, .cluster, .gpu or .sys"
        if m.scope and m.order in ("", "weak", "volatile"):
            return f"the scope .{m.scope} is only legal with .relaxed, .acquire or .release"
        space = m.space.partition("::")[0]
        legal = ("", "global", "shared") + (("local",) if m.order == "volatile" else ())
        if m.order not in ("", "weak") and space not in legal:
            return f".{m.order} is not for .{m.space}"
        if m.cop and m.evict:
            return f"the cache operator .{m.cop} and the priority .{m.evict} exclude each other"
        wide = m.vec == "v8" or (m.vec == "v4" and SCALAR_TYPES[m.type].bits == 64)
        if wide and m.space not in ("", "global"):
            return f"a vector access to .{m.space} has at most 128 bits"
        if m.l2evict and not wide:
            return f".{m.l2evict} is legal with 256-bit vectors alone"
        return _cache_misuse(m)


def _cache_misuse(m: Mods) -> str | None:
    """Words about caches are for global memory, and hardly for volatile accesses (measured)."""
    for word in (m.evict, m.l2evict, m.hint, m.prefetch):
        if word and m.space not in ("", "global"):
            return f".{word} is not legal with .{m.space}"
    if m.cop and m.order not in ("", "weak"):
        return f".{m.cop} is not legal with .{m.order}"
    for word in (m.evict, m.hint):
        if word and m.order == "volatile":
            return f".{word} is not legal with .volatile"
    return None


def _element_size(m: Mods) -> int:
    return SCALAR_TYPES[m.type].size


class _Load(_Memory):
    receives = "d"

    def space_of(self, m: Mods) -> str:
        return str(m.space)

    def bind(self, b: Any) -> Step:
        m = b.mods
        size = _element_size(m)
        writes = b.writes("d")
        count = len(writes)
        space = b.space("a", self.space_of(m))
        address = b.address("a")
        guard = b.guard()
        site = b.site

        def step(r: Registers, g: Any) -> None:
            mask = g.mask(guard(r))
            values = g.load(space, address(r, g), size, count, mask, site)
            for write, value in zip(writes, values, strict=True):
                write(r, value, mask)

        return step


_LD_SPACES = (
    "space?:{const const::0@1.0 global local param param::entry@8.3 param::func@8.3 shared"
    " shared::cta@7.8 shared::cluster@7.8+sm_90}"
)


_LD_ORDER = f"order?:{{weak@6.0+sm_70 relaxed@6.0+sm_70 acquire@6.0+sm_70 volatile}} {_SCOPES}"
_LD_COP = "cop?:{ca cg cs lu cv}"


def _ld_forms(between: str, space: str) -> tuple[Form, ...]:
    """The widths of a load; ``between`` and ``space`` are what stands before the cache words."""
    wide = f"{between} {space} {_CACHE} {_PREFETCH}"
    return (
        Form(f"{wide} vec?:{{v2 v4}} type:{{{_ALL}}}", "=^~d.type*vec, [a], cache.u64?hint"),
        Form(f"{wide} type:{{b128}}", "=d.type, [a], cache.u64?hint", floor="8.3+sm_70"),
        Form(
            f"{wide} vec:{{v8}} type:{{b32 u32 s32 f32}}", "=~d.type*vec, [a], cache.u64?hint",
            floor="8.8+sm_100",
        ),
    )  # fmt: skip


@instruction("ld", isa=_SECTION + "ld")
class Ld(_Load):
    """Load from memory; sub-word values are extended to the register."""

    forms = (
        *_ld_forms(f"{_LD_ORDER} {_LD_COP}", _LD_SPACES),
        Form(
            f"mmio order:{{relaxed}} scope:{{sys}} space?:{{global}} type:{{{_ALL} b128@8.4}}",
            "=^d.type, [a]",
            floor="8.2+sm_70",
        ),
    )


@instruction("ld", isa=_SECTION + "ld.global.nc", floor="3.1+sm_32")
class LdGlobalNc(_Load):
    """Load global data that the kernel does not write, by the non-coherent path."""

    forms = _ld_forms("", "space:{global} cop?:{ca cg cs} nc")

    def is_strong(self, m: Mods) -> bool:
        return False

    def memory_order(self, m: Mods) -> MemoryOrder:
        return MemoryOrder(coherent=False)


@instruction("ldu", isa=_SECTION + "ldu")
class Ldu(_Load):
    """Load data that is the same in the whole warp."""

    forms = (
        Form(f"space?:{{global}} vec?:{{v2 v4}} type:{{{_ALL}}}", "=^~d.type*vec, [a]"),
        Form("space?:{global} type:{b128}", "=d.type, [a]", floor="8.3+sm_70"),
    )

    def check(self, m: Mods) -> str | None:
        """Never more than 128 bits (measured)."""
        if m.vec == "v4" and SCALAR_TYPES[m.type].bits == 64:
            return f".v4.{m.type} has more than 128 bits"
        return super().check(m)


def _st_forms() -> tuple[Form, ...]:
    order = f"order?:{{weak@6.0+sm_70 relaxed@6.0+sm_70 release@6.0+sm_70 volatile}} {_SCOPES}"
    spaces = (
        "space?:{global local param param::func@8.3 shared shared::cta@7.8"
        " shared::cluster@7.8+sm_90}"
    )
    head = f"{order} {spaces} cop?:{{wb cg cs wt}} {_CACHE}"
    return (
        Form(f"{head} vec?:{{v2 v4}} type:{{{_ALL}}}", "[a], ^b.type*vec, cache.u64?hint"),
        Form(f"{head} type:{{b128}}", "[a], b.type, cache.u64?hint", floor="8.3+sm_70"),
        Form(
            f"{head} vec:{{v8}} type:{{b32 u32 s32 f32}}", "[a], b.type*vec, cache.u64?hint",
            floor="8.8+sm_100",
        ),
    )  # fmt: skip


@instruction("st", isa=_SECTION + "st")
class St(_Memory):
    """Store to memory; the low bits of a wider register."""

    propagates = ("b",)

    forms = (
        *_st_forms(),
        Form(
            f"mmio order:{{relaxed}} scope:{{sys}} space?:{{global}} type:{{{_ALL} b128@8.4}}",
            "[a], ^b.type",
            floor="8.2+sm_70",
        ),
    )

    def waits(self, m: Mods) -> bool:
        return False

    def lane_matters(self, m: Mods) -> bool:
        return True

    def definedness(self, b: Any) -> Step | None:
        """Undefined bits go to memory with the rest."""
        carry = b.unknown("b")

        def step(r: Registers, g: Any) -> None:
            g.storing = carry(r, g)

        return step

    def bind(self, b: Any) -> Step:
        m = b.mods
        size = _element_size(m)
        sources = b.sources("b")
        space = b.space("a", m.space)
        address = b.address("a")
        guard = b.guard()
        site = b.site
        if len(sources) == 1:
            (only,) = sources

            def step_one(r: Registers, g: Any) -> None:
                g.store(space, address(r, g), size, (r[only],), g.mask(guard(r)), site)

            return step_one

        def step(r: Registers, g: Any) -> None:
            values = [r[s] for s in sources]
            g.store(space, address(r, g), size, values, g.mask(guard(r)), site)

        return step


# --- no effect on values --------------------------------------------------------------------------


#: Bytes of a cache line, for instructions that name one.
_LINE = 128

#: 1.0 in f32.
_ONE = 0x3F800000


class _Hint(Instruction):
    def bind(self, b: Any) -> Step:
        return no_effect


@instruction("prefetch", isa=_SECTION + "prefetch, prefetchu", floor="2.0+sm_20")
class Prefetch(_Hint):
    """Prefetch a cache line: no effect on values."""

    forms = (
        Form("space?:{global local} level:{L1 L2}", "[a]"),
        Form("space?:{global} level:{L2::evict_last L2::evict_normal}", "[a]", floor="7.4+sm_80"),
        Form("space?:{const param} tensormap", "[a]", floor="8.0+sm_90"),
    )


@instruction("prefetchu", isa=_SECTION + "prefetch, prefetchu", floor="2.0+sm_20")
class Prefetchu(_Hint):
    """Prefetch into the uniform cache: no effect on values."""

    forms = (Form("L1", "[a]"),)


@instruction("applypriority", isa=_SECTION + "applypriority", floor="7.4+sm_80")
class Applypriority(_Hint):
    """Change the eviction priority of a cache line: no effect on values."""

    forms = (Form("space?:{global} L2::evict_normal", "[a], #n.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A line has 128 bytes."""
        return None if value == _LINE else f"the size is {_LINE}, not {value}"


@instruction("discard", isa=_SECTION + "discard", floor="7.4+sm_80")
class Discard(Instruction):
    """Destroy a cache line of global memory: a weak write of indeterminate values."""

    needs_defined = True
    traps = ("misaligned", "oob-global", "write-to-readonly")
    forms = (Form("space?:{global} L2", "[a], #n.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A line has 128 bytes."""
        return None if value == _LINE else f"the size is {_LINE}, not {value}"

    def bind(self, b: Any) -> Step:
        space, address = b.space("a", b.mods.space), b.address("a")
        guard, site = b.guard(), b.site

        def step(r: Registers, g: Any) -> None:
            g.discard(space, address(r, g), g.mask(guard(r)), site)

        return step


_PRIORITIES = (
    "primary:{L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged}"
    " secondary?:{L2::evict_first L2::evict_unchanged} type:{b64}"
)


class _Policy(Instruction):
    """The value of a cache policy is opaque, ours is zero."""

    def bind(self, b: Any) -> Step:
        write, guard = b.write("d"), b.guard()
        policy = np.zeros(1, np.uint64)

        def step(r: Registers, g: Any) -> None:
            write(r, policy, g.mask(guard(r)))

        return step


@instruction("createpolicy.fractional", isa=_SECTION + "createpolicy", floor="7.4+sm_80")
class CreatepolicyFractional(_Policy):
    """Make a cache policy for a part of the accesses."""

    forms = (Form(_PRIORITIES, "=d.u64, fraction.f32?"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A part is more than nothing and at most all (PTX ISA 9.1, createpolicy)."""
        return None if 0 < value <= _ONE else "a fraction is above 0 and at most 1"


@instruction("createpolicy.range", isa=_SECTION + "createpolicy", floor="7.4+sm_80")
class CreatepolicyRange(_Policy):
    """Make a cache policy for a range of addresses."""

    forms = (Form(f"space?:{{global}} {_PRIORITIES}", "=d.type, [a], primary_size.u32, size.u32"),)


@instruction("createpolicy.cvt", isa=_SECTION + "createpolicy", floor="7.4+sm_80")
class CreatepolicyCvt(_Policy):
    """Make a cache policy of an access property."""

    forms = (Form("L2 type:{b64}", "=d.type, a.type"),)


# --- addresses ------------------------------------------------------------------------------------


@instruction("cvta", isa=_SECTION + "cvta", floor="2.0+sm_20")
class Cvta(Pure):
    """Between an address in a state space and a generic address."""

    _SPACES = (
        "{const@3.1 global local param@7.7+sm_70 param::entry@8.3+sm_70 shared shared::cta@7.8"
        " shared::cluster@7.8+sm_90}"
    )
    forms = (
        Form(f"to! space:{_SPACES} type:{{u32 u64}}", "=d.type, a.type"),
        Form(f"space:{_SPACES} type:{{u32 u64}}", "=d.type, a.type"),
    )

    def combined_floor(self, m: Mods) -> tuple[str, Floor] | None:
        """32-bit generic addresses ended (measured)."""
        return ("u32", Floor.parse("-:90")) if m.type == "u32" else None

    def check_symbol(self, name: str, space: str, m: Mods) -> str | None:
        """A variable is in the space that is named; a generic address lies in a register."""
        if m.to:
            return super().check_symbol(name, space, m)
        fits = space == m.space.partition("::")[0]
        return None if fits else f"the variable is in .{space}, not in .{m.space}"

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        base = window_base(m.space)
        if base == 0 or m.type == "u32":
            return _same
        offset = np.uint64(base)
        if m.to:
            return lambda a: a - offset
        return lambda a: a + offset

    def undefined_bits(self, m: Mods) -> Rule | None:
        return from_low_bits


@instruction("isspacep", isa=_SECTION + "isspacep", floor="2.0+sm_20")
class Isspacep(Instruction):
    """Whether a generic address lies in the window of a state space."""

    _SPACE = (
        "space:{const@3.1 global local shared shared::cta@7.8 shared::cluster@7.8+sm_90"
        " param@7.7+sm_70 param::entry@8.3+sm_70}"
    )
    forms = (Form(_SPACE, "=p.pred, a.u64"), Form(_SPACE, "=p.pred, a.u32"))

    needs_defined = True

    def bind(self, b: Any) -> Step:
        space = b.mods.space.split("::")[0]
        source = b.source("a")
        write = b.write("p")
        guard = b.guard()

        def step(r: Registers, g: Any) -> None:
            write(r, g.in_window(space, r[source].astype(np.uint64)), g.mask(guard(r)))

        return step

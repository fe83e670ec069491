"""Barriers, fences and warp-wide votes (PTX ISA 9.1, Parallel Synchronization and Communication).

The ``.sync`` instructions wait until all lanes of their member mask that have not exited are at
the same instruction.  The member mask must name the executing lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..numerics import comparison
from ..numerics.bits import pack_lanes
from .order import WEAK, MemoryOrder
from .protocol import Array, BoolArray, Registers, Step, no_effect
from .record import Form, Instruction, Mods, instruction

__all__ = ["MaskedCollective", "WarpCollective", "member_gate"]

_P = "Parallel Synchronization and Communication Instructions: "


_LANE_BIT = (np.uint32(1) << np.arange(32, dtype=np.uint32))[None, :]


def member_gate(b: Any) -> Any:
    """The gate of an instruction with a member mask operand ``mask``."""
    place = b.source("mask")
    before = list(b.before)
    site = b.site

    def gate(r: Registers, g: Any) -> BoolArray | None:
        for step in before:
            step(r, g)
        w = g.warps()
        mask = np.broadcast_to(w.spread(r[place]), w.present.shape)
        own = (mask & _LANE_BIT) != 0
        outside = w.present & ~own
        if outside.any():
            warp = int(np.flatnonzero(outside.any(axis=1))[0])
            lane = int(np.flatnonzero(outside[warp])[0])
            g.finding(
                "mask-mismatch",
                f"lane {lane} executes '{site.text}' with member mask"
                f" {int(mask[warp, lane]):#010x}, which does not name it",
                site,
                w.collect(outside),
                help="a lane may only execute the instruction with a mask that names it",
                fatal=True,
            )
        needed = mask & w.live_bits[:, None]
        ready = (needed & ~w.met_bits[:, None]) == 0
        if ready[w.present].all():
            _same_masks(g, w, mask, site)
            return None
        result: BoolArray = w.collect(ready)
        return result

    return gate


def _same_masks(g: Any, w: Any, mask: Array, site: Any) -> None:
    """Lanes that name each other must give the same mask."""
    first = np.where(w.present, mask, np.uint32(0))
    if (first == first[:, :1]).all() or (mask[w.present] == mask[w.present][0]).all():
        return
    other = np.zeros_like(mask)
    for lane in range(32):
        named = (mask >> np.uint32(lane)) & np.uint32(1)
        differs = (named != 0) & w.present[:, lane : lane + 1] & (mask != mask[:, lane : lane + 1])
        other |= differs
    bad = w.present & (other != 0)
    if bad.any():
        g.finding(
            "mask-mismatch",
            f"lanes that '{site.text}' brings together give different member masks",
            site,
            w.collect(bad),
            help="give the same mask in all lanes that it names",
            fatal=True,
        )


class WarpCollective(Instruction):
    """Executed by whole warps together (``.sync.aligned``)."""

    collective = True
    waits_as = "collective-divergence"
    traps = ("collective-divergence",)

    def gate(self, b: Any) -> Any:
        def gate(r: Registers, g: Any) -> BoolArray | None:
            w = g.warps()
            ready = (w.live_bits & ~w.present_bits) == 0
            if ready.all():
                return None
            result: BoolArray = w.collect(np.broadcast_to(ready[:, None], w.present.shape))
            return result

        return gate


class MaskedCollective(Instruction):
    """Executed by the lanes of a member mask together (``.sync``)."""

    collective = True
    needs_defined = True
    waits_as = "mask-mismatch"
    traps = ("mask-mismatch",)

    def gate(self, b: Any) -> Any:
        return member_gate(b)


# --- barriers -------------------------------------------------------------------------------------


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


class _Barrier(Instruction):
    control = True
    needs_defined = True
    traps = ("barrier-divergence", "barrier-args", "deadlock")

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A CTA has 16 barriers; the thread count is in whole warps (PTX ISA 9.1, bar)."""
        if name == "a" and value > 15:
            return f"barriers are numbered 0 to 15, not {_signed(value)}"
        if name == "b" and (value % 32 or (m.arrive and not value)):
            return f"a thread count is a multiple of the warp size 32, not {_signed(value)}"
        return None

    def falls_through(self, m: Mods) -> bool:
        return True

    def transfer(self, b: Any) -> Any:
        m = b.mods
        barrier = b.source("a") if b.has("a") else b.places.constant(0, 32)
        count = b.source("b") if b.has("b") else -1
        reduce = m.op if m.red else ""
        predicate = b.source("c") if reduce else -1
        write: Any = b.write("d") if reduce else None
        after = b.next()
        site = b.site
        waits = not m.arrive

        def transfer(r: Registers, g: Any) -> Any:
            g.compact(range(len(r)))  # lanes that have left the group do not arrive
            r = g.r
            which = np.unique(r[barrier])
            if len(which) > 1 or (count >= 0 and len(np.unique(r[count])) > 1):
                return g.split_by([r[barrier]] + ([r[count]] if count >= 0 else []))
            threads = int(r[count][0]) if count >= 0 else None
            arrival = (int(which[0]), threads, waits, after, site, reduce)
            if not reduce:
                return g.arrive(*arrival, None, None)
            flags = g.full(r[predicate])

            def store(group: Any, value: Array) -> None:
                write(group.r, value, None)

            return g.arrive(*arrival, flags, store)

        return transfer


class _AlignedBarrier(_Barrier):
    """All lanes of a warp execute it together."""

    collective = True
    waits_as = "barrier-divergence"

    def gate(self, b: Any) -> Any:
        return WarpCollective.gate(self, b)  # type: ignore[arg-type]


def _forms(prefix: str, suffix: str, floor: str) -> tuple[Form, ...]:
    return (
        Form(f"{prefix}sync {suffix}", "a.u32, b.u32?", floor=floor),
        Form(f"{prefix}arrive! {suffix}", "a.u32, b.u32", floor=floor),
        Form(
            f"{prefix}red! op:{{popc}} {suffix} type:{{u32}}",
            "=d.type, a.u32, b.u32?, !c.pred",
            floor=floor,
        ),
        Form(
            f"{prefix}red! op:{{and or}} {suffix} type:{{pred}}",
            "=d.type, a.u32, b.u32?, !c.pred",
            floor=floor,
        ),
    )


@instruction("bar", isa=_P + "bar, barrier")
class Bar(_AlignedBarrier):
    """Barrier of a CTA, executed by whole warps."""

    forms = (*_forms("", "", "1.0"), *_forms("cta! ", "", "7.8"))


@instruction("barrier", isa=_P + "bar, barrier", floor="6.0+sm_30")
class BarrierAligned(_AlignedBarrier):
    """Barrier of a CTA, executed by whole warps."""

    forms = (*_forms("", "aligned", "6.0"), *_forms("cta! ", "aligned", "7.8"))


@instruction("barrier", isa=_P + "bar, barrier", floor="6.0+sm_30")
class Barrier(_Barrier):
    """Barrier of a CTA, executed by threads."""

    forms = (*_forms("", "", "6.0"), *_forms("cta! ", "", "7.8"))


@instruction("bar.warp.sync", isa=_P + "bar.warp.sync", floor="6.0+sm_30")
class BarWarpSync(MaskedCollective):
    """Barrier of the lanes of a mask; orders their memory accesses."""

    forms = (Form("", "mask.u32"),)
    meets = "bar.warp.sync"

    def bind(self, b: Any) -> Step:
        if not b.watched:
            return no_effect
        place = b.source("mask")

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            mask = np.broadcast_to(w.spread(r[place]), w.present.shape)
            named = ((mask[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1) != 0
            g.watch.warp_synced(g, named & w.present[:, :, None])

        return step


class _Fence(Instruction):
    def bind(self, b: Any) -> Step:
        if not b.watched:
            return no_effect
        guard, site = b.guard(), b.site

        def step(r: Registers, g: Any) -> None:
            g.watch.fence(g.wave, g.acting(g.mask(guard(r))), site.order, site)

        return step


class _ProxyFence(Instruction):
    def bind(self, b: Any) -> Step:
        if not b.watched:
            return no_effect
        guard, site, kind = b.guard(), b.site, b.mods.kind

        def step(r: Registers, g: Any) -> None:
            g.watch.proxy_fence(g.wave, g.acting(g.mask(guard(r))), kind, site)

        return step


@instruction("membar", isa=_P + "membar, fence")
class Membar(_Fence):
    """Order memory accesses; from sm_70 on a fence.sc (PTX ISA 9.1, membar, fence)."""

    def memory_order(self, m: Mods) -> MemoryOrder:
        scope = {"cta": "cta", "gl": "gpu", "sys": "sys"}.get(m.level, "sys")
        return MemoryOrder(scope, True, True, sequential=True)

    forms = (Form("level:{cta gl sys@2.0+sm_20}", ""),)


@instruction("membar", isa=_P + "membar, fence", floor="7.5+sm_60")
class MembarProxy(_ProxyFence):
    """Order accesses through different proxies."""

    forms = (Form("proxy! kind:{alias async@8.0+sm_90}", ""),)


@instruction("fence", isa=_P + "membar, fence", floor="6.0+sm_70")
class Fence(_Fence):
    """Order memory accesses; acq_rel unless it says otherwise."""

    def memory_order(self, m: Mods) -> MemoryOrder:
        if m.mbarrier_init:
            return WEAK
        return MemoryOrder(
            str(m.scope), m.sem != "release", m.sem != "acquire", sequential=m.sem == "sc"
        )

    forms = (
        Form("sem?:{sc acq_rel} scope:{cta gpu sys cluster@7.8+sm_90}", ""),
        Form(
            "alias sync_restrict::read sem:{release} scope:{sys}",
            "",
            floor="9.5+sm_90",
            unsupported="fence.alias is not modelled",
        ),
        Form("sem:{acquire release} scope:{cta gpu sys cluster}", "", floor="8.6+sm_90"),
        Form("mbarrier_init sem:{release} scope:{cluster}", "", floor="8.0+sm_90"),
    )

    def bind(self, b: Any) -> Step:
        # .mbarrier_init orders nothing but inits before use by other CTAs of the cluster
        return no_effect if b.mods.mbarrier_init else super().bind(b)


@instruction("fence.proxy", isa=_P + "membar, fence", floor="7.5+sm_70")
class FenceProxy(_ProxyFence):
    """Order accesses through different proxies; a space limits the fence to its accesses."""

    forms = (
        Form("kind:{alias}", ""),
        Form("kind:{async} space?:{global shared::cta shared::cluster}", "", floor="8.0+sm_90"),
        Form(
            "kind:{tensormap::generic} sem:{release} scope:{cta cluster gpu sys}", "",
            floor="8.3+sm_90", unsupported="tensor maps are not modelled",
        ),
        Form(
            "kind:{tensormap::generic} sem:{acquire} scope:{cta cluster gpu sys}",
            "[a], #size.u32", floor="8.3+sm_90", unsupported="tensor maps are not modelled",
        ),
    )  # fmt: skip

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A tensor map has 128 bytes."""
        return None if value == 128 else f"the size is 128, not {value}"


# --- votes ----------------------------------------------------------------------------------------


@instruction("vote.sync", isa=_P + "vote.sync", floor="6.0+sm_30")
class VoteSync(MaskedCollective):
    """all, any, uni of a predicate over the mask, or its ballot."""

    forms = (
        Form("mode:{all any uni} type:{pred}", "=d.type, !a.pred, mask.u32"),
        Form("mode:{ballot} type:{b32}", "=d.type, !a.pred, mask.u32"),
    )

    def bind(self, b: Any) -> Step:
        mode = b.mods.mode
        source, mask, write = b.source("a"), b.source("mask"), b.write("d")

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            votes = pack_lanes(w.spread(r[source]) & w.present)[:, None]
            members = w.spread(r[mask]) & w.present_bits[:, None]
            write(r, w.collect(_voted(mode, votes & members, members)), None)

        return step


def _voted(mode: str, votes: Array, members: Array) -> Array:
    if mode == "ballot":
        return votes
    nobody: Array = votes == 0
    if mode == "any":
        return ~nobody
    everyone: Array = votes == members
    return everyone if mode == "all" else everyone | nobody


@instruction("vote", isa=_P + "vote (deprecated)", floor="1.2-6.3:70")
class Vote(Instruction):
    """The form without a mask: over the lanes that execute it together (up to sm_6x)."""

    forms = (
        Form("mode:{all any uni} type:{pred}", "=d.type, !a.pred"),
        Form("mode:{ballot} type:{b32}", "=d.type, !a.pred", floor="2.0+sm_20"),
    )
    collective = True
    needs_defined = True

    def gate(self, b: Any) -> Any:
        return lambda r, g: None

    def bind(self, b: Any) -> Step:
        mode = b.mods.mode
        source, write = b.source("a"), b.write("d")

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            votes = pack_lanes(w.spread(r[source]) & w.present)[:, None]
            write(r, w.collect(_voted(mode, votes, w.present_bits[:, None])), None)

        return step


@instruction("match.any.sync", isa=_P + "match.sync", floor="6.0+sm_70")
class MatchAny(MaskedCollective):
    """Mask of the named lanes with the same value."""

    forms = (Form("type:{b32 b64}", "=d.u32, a.type, mask.u32"),)

    def bind(self, b: Any) -> Step:
        source, mask, write = b.source("a"), b.source("mask"), b.write("d")

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            value = w.spread(r[source])
            members = np.broadcast_to(w.spread(r[mask]), w.present.shape)
            equal = (value[:, :, None] == value[:, None, :]) & w.present[:, None, :]
            write(r, w.collect(pack_lanes(equal) & members), None)

        return step


@instruction("match.all.sync", isa=_P + "match.sync", floor="6.0+sm_70")
class MatchAll(MaskedCollective):
    """The mask if all named lanes have the same value, else 0."""

    forms = (Form("type:{b32 b64}", "=~d.u32|p, a.type, mask.u32"),)

    def bind(self, b: Any) -> Step:
        source, mask = b.source("a"), b.source("mask")
        write, write_p = b.write("d"), b.write_second("d")

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            value = w.spread(r[source])
            members = np.broadcast_to(w.spread(r[mask]), w.present.shape) & w.present_bits[:, None]
            equal = (value[:, :, None] == value[:, None, :]) & w.present[:, None, :]
            same = (pack_lanes(equal) & members) == members
            write(r, w.collect(members * same), None)
            write_p(r, w.collect(same), None)

        return step


@instruction("activemask", isa=_P + "activemask", floor="6.2+sm_30")
class Activemask(Instruction):
    """Mask of the lanes of the warp that execute it together now."""

    forms = (Form("type:{b32}", "=d.type"),)
    collective = True

    def gate(self, b: Any) -> Any:
        return lambda r, g: None

    def bind(self, b: Any) -> Step:
        write = b.write("d")

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            write(r, w.collect(np.broadcast_to(w.present_bits[:, None], w.present.shape)), None)

        return step


@instruction("elect.sync", isa=_P + "elect.sync", floor="8.0+sm_90")
class Elect(MaskedCollective):
    """One lane of the mask: the lowest."""

    forms = (Form("", "=~d.u32|p!, mask.u32"),)

    def bind(self, b: Any) -> Step:
        mask = b.source("mask")
        write, write_p = b.write("d"), b.write_second("d")

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            members = np.broadcast_to(w.spread(r[mask]), w.present.shape) & w.present_bits[:, None]
            lowest = members & (~members + np.uint32(1))
            lane = np.bitwise_count(lowest - np.uint32(1)).astype(np.uint32)
            write(r, w.collect(lane), None)
            write_p(r, w.collect(lowest == _LANE_BIT), None)

        return step


@instruction("redux.sync", isa=_P + "redux.sync", floor="7.0+sm_80")
class Redux(MaskedCollective):
    """Reduction over the lanes of the mask."""

    forms = (
        Form("op:{add min max} type:{u32 s32}", "=d.type, a.type, mask.u32"),
        Form("op:{and or xor} type:{b32}", "=d.u32, a.u32, mask.u32"),
        Form(
            "op:{min max} abs? NaN? type:{f32}", "=d.type, a.type, mask.u32",
            floor="8.6+sm_100a/sm_100f/sm_103a",
        ),
    )  # fmt: skip

    def bind(self, b: Any) -> Step:
        m = b.mods
        source, mask, write = b.source("a"), b.source("mask"), b.write("d")
        operation = _UFUNCS[m.op]
        dtype: Any = np.int32 if m.type == "s32" else np.uint32
        neutral = {
            "min": np.iinfo(dtype).max, "max": np.iinfo(dtype).min, "and": 0xFFFFFFFF,
        }.get(m.op, 0)  # fmt: skip
        enter, leave = _ranks(m) if m.type == "f32" else (_as_they_are, _as_they_are)

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            value = np.ascontiguousarray(w.spread(enter(r[source]))).view(dtype)
            members = np.broadcast_to(w.spread(r[mask]), w.present.shape) & w.present_bits[:, None]
            if (members == members[:, :1])[w.present].all() and w.present[:, 0].all():
                chosen = (members[:, :1] & _LANE_BIT) != 0
                kept = np.where(chosen, value, dtype(neutral))
                result = operation.reduce(kept, axis=1, keepdims=True, dtype=dtype)
            else:
                chosen3 = ((members[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1) != 0
                kept3 = np.where(chosen3, value[:, None, :], dtype(neutral))
                result = operation.reduce(kept3, axis=2, dtype=dtype)
            found = leave(result.view(np.uint32))
            write(r, w.collect(np.broadcast_to(found, w.present.shape)), None)

        return step


_UFUNCS: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_MAGNITUDE = np.uint32(0x7FFF_FFFF)


def _as_they_are(bits: Array) -> Array:
    return bits


def _ranks(m: Mods) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """From f32 patterns to numbers that min or max reduces as they are, and back.

    A NaN stands where it always wins with ``.NaN``, and otherwise where it never does.
    """
    lowest_nan = (m.op == "min") == bool(m.NaN)

    def enter(bits: Array) -> Array:
        return comparison.rank(bits & _MAGNITUDE if m.abs else bits, lowest_nan=lowest_nan)

    return enter, comparison.ranked

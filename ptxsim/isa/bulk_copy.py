"""Bulk asynchronous copies (PTX ISA 9.1, Data Movement: cp.async.bulk, cp.reduce.async.bulk).

Between global memory and the shared memory of the executing CTA; a ``.shared::cluster`` address
names the executing CTA's memory.  What reaches other CTAs is not modelled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import SCALAR_TYPES
from .atomics import operation
from .protocol import Array, BoolArray, Registers, Site, Step, no_effect
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "

_HINT = "hint?:{L2::cache_hint}"
_SIGNAL = "signal:{mbarrier::complete_tx::bytes}"
_STORE = "to:{global} from:{shared::cta} bulk_group"
_PEER = "to:{shared::cluster} from:{shared::cta}"
_CACHE = ", cache.u64?hint"

_MULTICAST = "copies to several CTAs of a cluster are not modelled"

#: Bulk copies are made of chunks of so many bytes.
_CHUNK = 16

#: The largest size of st.bulk.
_ST_BULK_LIMIT = 1 << 24


class _Bulk(Instruction):
    needs_defined = True
    traps = ("bulk-args", "misaligned", "oob", "uninit-global", "write-to-readonly", "mbarrier")

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Sizes are multiples of 16 (measured); fewer bytes than that are ignored."""
        if name in ("left", "right") and value >= _CHUNK:
            return f"fewer than {_CHUNK} bytes are ignored, not {value}"
        return f"a size is a multiple of 16, not {value}" if name == "n" and value % 16 else None

    def reduction(self, m: Mods) -> Any:
        """What becomes of each element, with its size; None for a copy."""
        return None

    def bind(self, b: Any) -> Step:
        m = b.mods
        direction = f"{m['from'].partition('::')[0]}->{m.to.partition('::')[0]}"
        target, source, size = b.address("d"), b.address("a"), b.source("n")
        signal = b.address("mbar") if b.has("mbar") else None
        edges = [b.source(name) for name in ("left", "right") if b.has(name)]
        reduction, guard, site = self.reduction(m), b.guard(), b.site

        def step(r: Registers, g: Any) -> None:
            mask = g.mask(guard(r))
            g.service("bulk_copies").issue(
                g, direction, target(r, g), source(r, g), r[size],
                signal(r, g) if signal is not None else None, mask, site, reduction,
                [r[edge] for edge in edges],
            )  # fmt: skip

        return step


@instruction("cp.async.bulk", isa=_SECTION + "cp.async.bulk", floor="8.0+sm_90")
class CpAsyncBulk(_Bulk):
    """Copy a multiple of 16 bytes; its bytes complete on an mbarrier, or it is in a bulk group."""

    forms = (
        Form(
            f"to:{{shared::cta@8.6 shared::cluster}} from:{{global}} {_SIGNAL} {_HINT}",
            "[d], [a], n.u32, [mbar]" + _CACHE,
        ),
        Form(
            f"to:{{shared::cluster}} from:{{global}} {_SIGNAL} multicast::cluster {_HINT}",
            "[d], [a], n.u32, [mbar], ctas.u16" + _CACHE, unsupported=_MULTICAST,
        ),
        Form(
            f"to:{{shared::cta}} from:{{global}} {_SIGNAL} {_HINT} ignore_oob",
            "[d], [a], n.u32, left.u32, right.u32, [mbar]" + _CACHE, floor="9.2",
        ),
        Form(
            f"{_PEER} {_SIGNAL}", "[d], [a], n.u32, [mbar]",
            unsupported="copies to the shared memory of another CTA are not modelled",
        ),
        Form(f"{_STORE} {_HINT}", "[d], [a], n.u32" + _CACHE),
        Form(
            f"{_STORE} {_HINT} cp_mask", "[d], [a], n.u32" + _CACHE + ", bytes.u16",
            floor="8.6+sm_100", unsupported="cp.async.bulk.cp_mask is not modelled",
        ),
    )  # fmt: skip


@instruction("cp.reduce.async.bulk", isa=_SECTION + "cp.reduce.async.bulk", floor="8.0+sm_90")
class CpReduceAsyncBulk(_Bulk):
    """Combine each element of the target with that of the source; additions of f32 flush."""

    forms = (
        *(
            Form(f"{_PEER} {_SIGNAL} {what}", "[d], [a], n.u32, [mbar]")
            for what in (
                "op:{and or xor} type:{b32}", "op:{add} type:{u32 s32 u64}",
                "op:{min max} type:{u32 s32}", "op:{inc dec} type:{u32}",
            )
        ),
        *(
            Form(f"{_STORE} {_HINT} {what}", "[d], [a], n.u32" + _CACHE)
            for what in (
                "op:{and or xor} type:{b32 b64}", "op:{add} type:{u32 s32 u64 f32 f64}",
                "op:{add} noftz type:{f16 bf16}", "op:{inc dec} type:{u32}",
                "op:{min max} type:{u32 s32 u64 s64 f16 bf16}",
            )
        ),
    )  # fmt: skip

    def reduction(self, m: Mods) -> Any:
        return operation(m)[0], SCALAR_TYPES[m.type].size


@instruction("cp.async.bulk.prefetch", isa=_SECTION + "cp.async.bulk.prefetch", floor="8.0+sm_90")
class CpAsyncBulkPrefetch(_Bulk):
    """A hint that global memory will be read."""

    forms = (Form(f"L2 space:{{global}} {_HINT}", "[a], n.u32" + _CACHE),)

    def bind(self, b: Any) -> Step:
        return no_effect


@instruction(
    "cp.async.bulk.commit_group", isa=_SECTION + "cp.async.bulk.commit_group", floor="8.0+sm_90"
)
class CpAsyncBulkCommitGroup(Instruction):
    """Close the bulk group of the copies issued so far."""

    forms = (Form("", ""),)

    def bind(self, b: Any) -> Step:
        guard, site = b.guard(), b.site

        def step(r: Registers, g: Any) -> None:
            lanes = g.acting(g.mask(guard(r)))
            if len(lanes):
                g.service("bulk_copies").commit(g.wave, lanes, site)

        return step


@instruction(
    "cp.async.bulk.wait_group", isa=_SECTION + "cp.async.bulk.wait_group", floor="8.0+sm_90"
)
class CpAsyncBulkWaitGroup(Instruction):
    """Wait until at most n of the newest bulk groups are pending, or have not read their source."""

    forms = (
        Form("read?", "#n.s32"),
        Form(
            "read? sync_restrict::proxy::async", "#n.s32", floor="9.5",
            unsupported="cp.async.bulk.wait_group.sync_restrict is not modelled",
        ),
    )  # fmt: skip

    def bind(self, b: Any) -> Step:
        pending = b.constant("n")
        pending = 0 if pending >> 31 else pending
        read, guard, site = bool(b.mods.read), b.guard(), b.site

        def step(r: Registers, g: Any) -> None:
            lanes = g.acting(g.mask(guard(r)))
            if len(lanes):
                g.service("bulk_copies").wait(g.wave, lanes, pending, read, site)

        return step


@instruction("st.bulk", isa=_SECTION + "st.bulk", floor="8.6+sm_100")
class StBulk(Instruction):
    """Set bytes of shared memory to zero, a multiple of 8."""

    forms = (Form("weak? space?:{shared::cta}", "[a], n.u64, #value.u32"),)
    needs_defined = True
    traps = ("bulk-args", "misaligned-shared", "oob-shared")

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The value is zero, the size a multiple of 8 up to 2^24."""
        if name == "value":
            return f"the value is 0, not {value}" if value else None
        if name == "n" and (value % 8 or value > _ST_BULK_LIMIT):
            return f"a size is a multiple of 8 up to {_ST_BULK_LIMIT}, not {value}"
        return None

    def bind(self, b: Any) -> Step:
        space, address = b.space("a", b.mods.space), b.address("a")
        size, guard, site = b.source("n"), b.guard(), b.site
        zero = np.zeros(1, np.uint64)

        def step(r: Registers, g: Any) -> None:
            acting = g.mask(guard(r))
            acting = np.ones(g.n, bool) if acting is None else acting
            sizes, at = g.full(r[size]), g.full(address(r, g).astype(np.uint64))
            _check(g, sizes, acting, site)
            if space == "generic" and (acting & ~g.in_window("shared", at)).any():
                g.finding(
                    "oob-shared", "the generic address is not in shared memory", site,
                    acting & ~g.in_window("shared", at), fatal=True,
                )  # fmt: skip
            for offset in range(0, int(sizes[acting].max(initial=0)), 8):
                writes = acting & (sizes > np.uint64(offset))
                g.store(space, at + np.uint64(offset), 8, [zero], writes, site)

        return step


def _check(g: Any, sizes: Array, acting: BoolArray, site: Site) -> None:
    bad = acting & ((sizes % np.uint64(8) != 0) | (sizes > np.uint64(_ST_BULK_LIMIT)))
    if bad.any():
        g.finding(
            "bulk-args",
            f"the size is a multiple of 8 up to {_ST_BULK_LIMIT}, not {int(sizes[bad][0])}",
            site,
            bad,
            fatal=True,
        )

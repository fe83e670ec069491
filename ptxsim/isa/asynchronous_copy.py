"""Non-bulk asynchronous copies (PTX ISA 9.1, Data Movement: cp.async and its groups)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .protocol import Registers, Step
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "

_TARGET = "to:{shared shared::cta} from:{global}"
_TAIL = "hint?:{L2::cache_hint@7.4} prefetch?:{L2::64B@7.4 L2::128B@7.4 L2::256B@7.4}"


@instruction("cp.async", isa=_SECTION + "cp.async", floor="7.0+sm_80")
class CpAsync(Instruction):
    """Copy 4, 8 or 16 bytes from global to shared memory, to land by the wait for its group.

    With a source size the bytes behind it are zero; with a true ignore-src predicate all are.
    """

    forms = (
        Form(f"cop:{{ca cg}} {_TARGET} {_TAIL}", "[d], [a], #size.u32, cache.u64?hint"),
        Form(
            f"cop:{{ca cg}} {_TARGET} {_TAIL}", "[d], [a], #size.u32, src_size.u32, cache.u64?hint"
        ),
        Form(
            f"cop:{{ca cg}} {_TARGET} {_TAIL}",
            "[d], [a], #size.u32, !ignore.pred, cache.u64?hint",
            floor="7.5",
        ),
    )
    needs_defined = True
    counts_guard = True
    traps = ("misaligned", "oob", "copy-size")

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The sizes of cp.async (PTX ISA, cp.async)."""
        if name == "size":
            legal = (16,) if m.cop == "cg" else (4, 8, 16)
            if value not in legal:
                many = " or ".join(map(str, legal))
                return f"cp.async.{m.cop} copies {many} bytes, not {value}"
        if name == "ignore" or (name == "src_size" and value > 16):
            return "a source size is from 0 to 16 bytes, the ignore-src predicate a register"
        return None

    def bind(self, b: Any) -> Step:
        size = b.constant("size")
        target, source = b.address("d"), b.address("a")
        source_size = b.source("src_size") if b.has("src_size") else -1
        ignore = b.source("ignore") if b.has("ignore") else -1
        guard = b.guard()
        site = b.site

        def step(r: Registers, g: Any) -> None:
            mask = g.mask(guard(r))
            copied = np.array([size], np.uint32)
            if source_size >= 0:
                copied = r[source_size]
                too_many = g.full(copied > np.uint32(size))
                if mask is not None:
                    too_many = too_many & mask
                if too_many.any():
                    g.finding(
                        "copy-size", f"the source size exceeds the copy size of {size} bytes", site,
                        too_many, fatal=True,
                    )  # fmt: skip
            if ignore >= 0:
                copied = copied * ~r[ignore]
            g.copy_async(target(r, g), source(r, g), size, copied, mask, site)

        return step


@instruction(
    "cp.async.mbarrier.arrive",
    isa="Parallel Synchronization and Communication Instructions: cp.async.mbarrier.arrive",
    floor="7.0+sm_80",
)
class CpAsyncMbarrierArrive(Instruction):
    """Arrive at an mbarrier when the copies that the thread has issued so far have landed.

    Without .noinc the object first expects one arrival more, so that nothing changes in sum.
    """

    forms = (Form("noinc? space?:{shared shared::cta@7.8} b64", "[a]"),)
    needs_defined = True
    traps = ("mbarrier", "misaligned-shared", "oob-shared")

    def bind(self, b: Any) -> Step:
        space, address = b.space("a", b.mods.space), b.address("a")
        guard, site, raises = b.guard(), b.site, not b.mods.noinc

        def step(r: Registers, g: Any) -> None:
            barriers = g.service("mbarriers")
            who = barriers.locate(g, space, address(r, g), g.mask(guard(r)), site)
            if who is not None:
                barriers.require(who)
                g.service("async_copies").signal(who, raises)

        return step


class _Group(Instruction):
    def bind(self, b: Any) -> Step:
        guard = b.guard()
        action, site = self.action(b), b.site

        def step(r: Registers, g: Any) -> None:
            lanes = g.acting(g.mask(guard(r)))
            if len(lanes):
                action(g.service("async_copies"), g.wave, lanes, site)

        return step

    def action(self, b: Any) -> Any:
        """What happens to the groups of the acting lanes."""
        raise AssertionError


@instruction("cp.async.commit_group", isa=_SECTION + "cp.async.commit_group", floor="7.0+sm_80")
class CpAsyncCommitGroup(_Group):
    """Close the group of the copies issued so far."""

    forms = (Form("", ""),)

    def action(self, b: Any) -> Any:
        return lambda copies, *where: copies.commit(*where)


@instruction("cp.async.wait_group", isa=_SECTION + "cp.async.wait_group", floor="7.0+sm_80")
class CpAsyncWaitGroup(_Group):
    """Wait until at most n of the newest groups are pending."""

    forms = (Form("", "#n.s32"),)

    def action(self, b: Any) -> Any:
        pending = b.constant("n")
        pending = pending - (1 << 32) if pending >> 31 else pending
        return lambda copies, wave, lanes, site: copies.wait(wave, lanes, max(pending, 0), site)


@instruction("cp.async.wait_all", isa=_SECTION + "cp.async.wait_all", floor="7.0+sm_80")
class CpAsyncWaitAll(_Group):
    """Wait for every copy issued so far."""

    forms = (Form("", ""),)

    def action(self, b: Any) -> Any:
        return lambda copies, *where: copies.wait_all(*where)

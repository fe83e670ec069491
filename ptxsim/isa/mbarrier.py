"""Mbarrier objects (PTX ISA 9.1, Parallel Synchronization and Communication: mbarrier).

An object counts arrivals and, from sm_90 on, the bytes of asynchronous copies.  Its phase is
complete when no arrival is pending and the tx-count is zero.  Objects of other CTAs of a cluster
are not modelled: ``.shared::cluster`` addresses name the memory of the executing CTA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .order import MemoryOrder
from .protocol import Array, Registers, Step
from .record import Form, Instruction, Mods, Pure, instruction

__all__ = ["COUNT_LIMIT", "pack_state", "pending_of", "phase_of", "serial_of"]

_P = "Parallel Synchronization and Communication Instructions: "

#: The largest arrival count and the largest magnitude of a tx-count.
COUNT_LIMIT = (1 << 20) - 1

# The 64 bits of a state are opaque to programs.  Ours hold what tells a stale one from a good one.
#   63 parity | 62..43 2^20 - pending arrivals | 42..21 phase | 20..1 serial number of the object
_PENDING, _PHASE, _SERIAL = 43, 21, 1
_FIELD = {_PENDING: COUNT_LIMIT, _PHASE: (1 << 22) - 1, _SERIAL: COUNT_LIMIT}


def pack_state(phase: int, pending: Array, serial: int) -> Array:
    """The states of an object in a phase with so many arrivals pending; uint64."""
    fixed = (phase & 1) << 63 | (phase & _FIELD[_PHASE]) << _PHASE
    fixed |= (serial & _FIELD[_SERIAL]) << _SERIAL
    field = (COUNT_LIMIT + 1 - np.asarray(pending, np.int64)) & COUNT_LIMIT
    state: Array = np.uint64(fixed) | field.astype(np.uint64) << np.uint64(_PENDING)
    return state


def _field(state: Array, at: int) -> Array:
    return ((state >> np.uint64(at)) & np.uint64(_FIELD[at])).astype(np.int64)


def pending_of(state: Array) -> Array:
    """The pending arrivals of a state."""
    return (COUNT_LIMIT + 1 - _field(state, _PENDING)) & COUNT_LIMIT


def phase_of(state: Array) -> Array:
    """The phase of a state, modulo 2^22."""
    return _field(state, _PHASE)


def serial_of(state: Array) -> Array:
    """The number of the object that a state belongs to, modulo 2^20."""
    return _field(state, _SERIAL)


# --- parts of the records -------------------------------------------------------------------------

_OWN = "space?:{shared shared::cta@7.8}"
_ANY = "space?:{shared shared::cta@7.8 shared::cluster@8.0+sm_90}"
_RELEASE = "sem?:{release@8.0 relaxed@8.6+sm_90} scope?:{cta cluster@8.0+sm_90}"
_ACQUIRE = "sem?:{acquire@8.0 relaxed@8.6+sm_90} scope?:{cta cluster@8.0+sm_90}"
_RELAXED = "sem?:{relaxed} scope?:{cta cluster}"

#: Does its work for the acting lanes: registers, lanes, service, who acts.
Action = Callable[[Registers, Any, Any, Any], None]


class _OnObject(Instruction):
    """An instruction on the mbarrier at address ``a``."""

    needs_defined = True
    traps = ("mbarrier", "misaligned-shared", "oob-shared")

    def check(self, m: Mods) -> str | None:
        """Semantics and scope come together (measured)."""
        if bool(m.sem) != bool(m.scope):
            given, missing = ("sem", "a scope: .cta or .cluster") if m.sem else ("scope", "a .sem")
            return f".{m[given]} needs {missing}"
        return None

    def action(self, b: Any) -> Action:
        """What happens to the object."""
        raise AssertionError

    def bind(self, b: Any) -> Step:
        space, address = b.space("a", b.mods.space), b.address("a")
        guard, site = b.guard(), b.site
        act = self.action(b)

        def step(r: Registers, g: Any) -> None:
            barriers = g.service("mbarriers")
            who = barriers.locate(g, space, address(r, g), g.mask(guard(r)), site)
            if who is not None:
                act(r, g, barriers, who)

        return step


def _constant_count(value: int) -> str | None:
    if not 1 <= value <= COUNT_LIMIT:
        return f"a count is from 1 to {COUNT_LIMIT}, not {value}"
    return None


# --- life -----------------------------------------------------------------------------------------


@instruction("mbarrier.init", isa=_P + "mbarrier.init", floor="7.0+sm_80")
class MbarrierInit(_OnObject):
    """Make an object: phase 0, and the count as pending and expected arrivals."""

    forms = (Form(f"{_OWN} b64", "[a], count.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The count is within its range."""
        return _constant_count(value) if name == "count" else None

    def action(self, b: Any) -> Action:
        count = b.source("count")
        return lambda r, g, barriers, who: barriers.init(who, who.values(g, r[count]))


@instruction("mbarrier.inval", isa=_P + "mbarrier.inval", floor="7.0+sm_80")
class MbarrierInval(_OnObject):
    """End an object; its memory may be used for other things."""

    forms = (Form(f"{_OWN} b64", "[a]"),)

    def action(self, b: Any) -> Action:
        return lambda r, g, barriers, who: barriers.invalidate(who)


# --- arrivals and bytes ---------------------------------------------------------------------------


class _Arrive(_OnObject):
    """Arrive; the result is the state of the object before."""

    drops = False

    def memory_order(self, m: Mods) -> MemoryOrder:
        """Releases at scope .cta unless it says otherwise."""
        return MemoryOrder(str(m.scope) or "cta", release=m.sem != "relaxed")

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The count is within its range."""
        return _constant_count(value) if name == "count" else None

    def action(self, b: Any) -> Action:
        count = b.source("count") if b.has("count") else -1
        size = b.source("tx") if b.has("tx") else -1
        write = b.write("d") if b.has("d") else None
        drops, no_complete = self.drops, bool(b.mods.noComplete)

        def act(r: Registers, g: Any, barriers: Any, who: Any) -> None:
            counts = who.values(g, r[count]) if count >= 0 else None
            expected = who.values(g, r[size]) if size >= 0 else None
            states = barriers.arrive(who, counts, expected, drops, no_complete)
            if write is not None:
                write(r, who.spread(states), who.mask)

        return act


def _arrive_forms(first_sink: str) -> tuple[Form, ...]:
    """With a result; with the sink, as memory of other CTAs needs it; ``first_sink`` is its floor.

    A count without .noComplete came with sm_90.
    """
    no_complete = f"noComplete sem?:{{release@8.0}} scope?:{{cta}} {_OWN} b64"
    return (
        Form(f"{_RELEASE} {_OWN} b64", "=d.u64, [a]"),
        Form(f"{_RELEASE} {_OWN} b64", "=d.u64, [a], count.u32", floor="7.8+sm_90"),
        Form(f"{_RELEASE} {_ANY} b64", "@sink, [a]", floor=first_sink),
        Form(f"{_RELEASE} {_ANY} b64", "@sink, [a], count.u32", floor="7.8+sm_90"),
        Form(f"expect_tx! {_RELEASE} {_OWN} b64", "=d.u64, [a], tx.u32", floor="8.0+sm_90"),
        Form(f"expect_tx! {_RELEASE} {_ANY} b64", "@sink, [a], tx.u32", floor="8.0+sm_90"),
        Form(no_complete, "=d.u64, [a], count.u32"),
        Form(no_complete, "@sink, [a], count.u32", floor=first_sink),
    )


@instruction("mbarrier.arrive", isa=_P + "mbarrier.arrive", floor="7.0+sm_80")
class MbarrierArrive(_Arrive):
    """Arrive at an object, once or ``count`` times, or once after expecting more bytes."""

    forms = _arrive_forms("7.1")


@instruction("mbarrier.arrive_drop", isa=_P + "mbarrier.arrive_drop", floor="7.0+sm_80")
class MbarrierArriveDrop(_Arrive):
    """Arrive, and be expected no more in later phases."""

    forms = _arrive_forms("7.0")
    drops = True


class _Transaction(_OnObject):
    def memory_order(self, m: Mods) -> MemoryOrder:
        """Relaxed at scope .cta unless it says otherwise."""
        return MemoryOrder(str(m.scope) or "cta")

    forms = (Form(f"{_RELAXED} {_ANY} b64", "[a], tx.u32"),)


@instruction("mbarrier.expect_tx", isa=_P + "mbarrier.expect_tx", floor="8.0+sm_90")
class MbarrierExpectTx(_Transaction):
    """Raise the tx-count by the bytes that are to come."""

    def action(self, b: Any) -> Action:
        size = b.source("tx")
        return lambda r, g, barriers, who: barriers.expect(who, who.values(g, r[size]))


@instruction("mbarrier.complete_tx", isa=_P + "mbarrier.complete_tx", floor="8.0+sm_90")
class MbarrierCompleteTx(_Transaction):
    """Lower the tx-count as the end of a copy would."""

    def action(self, b: Any) -> Action:
        size = b.source("tx")
        return lambda r, g, barriers, who: barriers.expect(who, -who.values(g, r[size]))


# --- waits ----------------------------------------------------------------------------------------


class _Wait(_OnObject):
    """Whether a phase is complete: that of a state, or the one before the current by its parity."""

    def waits(self, m: Mods) -> bool:
        return True

    def memory_order(self, m: Mods) -> MemoryOrder:
        """Acquires at scope .cta unless it says otherwise."""
        return MemoryOrder(str(m.scope) or "cta", acquire=m.sem != "relaxed")

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A parity is 0 or 1 (measured)."""
        return f"a parity is 0 or 1, not {value}" if name == "parity" and value > 1 else None

    def action(self, b: Any) -> Action:
        by_parity = b.has("parity")
        asked = b.source("parity" if by_parity else "state")
        write = b.write("p")

        def act(r: Registers, g: Any, barriers: Any, who: Any) -> None:
            test = barriers.test_parity if by_parity else barriers.test_state
            write(r, who.spread(test(who, who.values(g, r[asked]))), who.mask)

        return act


@instruction(
    "mbarrier.test_wait", isa=_P + "mbarrier.test_wait, mbarrier.try_wait", floor="7.0+sm_80"
)
class MbarrierTestWait(_Wait):
    """Test for the completion of a phase."""

    forms = (
        Form(f"{_ACQUIRE} {_OWN} b64", "=p.pred, [a], state.u64"),
        Form(f"parity! {_ACQUIRE} {_OWN} b64", "=p.pred, [a], parity.u32", floor="7.1"),
    )


@instruction(
    "mbarrier.try_wait", isa=_P + "mbarrier.test_wait, mbarrier.try_wait", floor="7.8+sm_90"
)
class MbarrierTryWait(_Wait):
    """Wait for the completion of a phase, for a limited time; here it never suspends."""

    forms = (
        Form(f"{_ACQUIRE} {_OWN} b64", "=p.pred, [a], state.u64, hint.u32?"),
        Form(f"parity! {_ACQUIRE} {_OWN} b64", "=p.pred, [a], parity.u32, hint.u32?"),
    )


@instruction("mbarrier.pending_count", isa=_P + "mbarrier.pending_count", floor="7.0+sm_80")
class MbarrierPendingCount(Pure):
    """The pending arrivals of a state."""

    forms = (Form("b64", "=d.u32, state.u64"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return lambda state: pending_of(state).astype(np.uint32)

"""Undefined bits while a program runs: beside registers, in memory, and in reports.

Shared and local memory have shadow bytes of the bits that were written; global memory has those of
:class:`ptxsim.machine.memory.GlobalMemory`.  A load takes undefined bits along and a store to
shared or local memory puts them back; a store to global memory, which the host can see, reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.definedness import touched
from ..isa.protocol import Array, BoolArray, Site, Unknown
from ..program import Origin

if TYPE_CHECKING:
    from .access import Access, Place
    from .group import Group
    from .wave import Wave

__all__ = [
    "follow_atomic",
    "gather",
    "marked",
    "merge_unknown",
    "observe",
    "report_stored",
    "shadows_of",
    "store_unknown",
    "take_unknown",
]

# --- beside registers -----------------------------------------------------------------------------


def marked(
    old: Unknown | None, new: Unknown | None, mask: BoolArray | None, template: Array
) -> Unknown | None:
    """The undefined bits of a register after a write of some lanes; None: it is defined."""
    if mask is not None and mask.shape[0] == 1:
        if not mask[0]:
            return old
        mask = None
    if mask is not None and (old is not None or new is not None):
        zero = (np.zeros_like(template[..., :1]), np.zeros(1, np.int32))
        (bits, origin), (kept, kept_origin) = new or zero, old or zero
        new = np.where(mask, bits, kept), np.where(mask, origin, kept_origin)
    if new is None or not np.count_nonzero(new[0]):
        return None
    return new


def take_unknown(known: dict[int, Unknown], at: Array, live: Iterable[int]) -> dict[int, Unknown]:
    """The undefined bits of live registers of the lanes at positions ``at``."""
    if not known:
        return {}
    out = {}
    for place in set(live) & known.keys():
        bits, origin = known[place]
        if bits.shape[-1] != 1:
            bits = bits.take(at, axis=-1)
        if origin.shape[0] != 1:
            origin = origin.take(at)
        if bits.any():
            out[place] = bits, origin
    return out


def merge_unknown(
    files: Sequence[dict[int, Unknown]], sizes: Sequence[int], live: Iterable[int], order: Array
) -> dict[int, Unknown]:
    """Those of several groups as one; ``order`` sorts the lanes of all."""
    present = set().union(*files)
    if not present:
        return {}
    out = {}
    for place in present & set(live):
        entries = [known.get(place) for known in files]
        like = next(e[0] for e in entries if e is not None)
        zero = (np.zeros_like(like[..., :1]), np.zeros(1, np.int32))
        parts = [e or zero for e in entries]
        out[place] = (
            _joined([p[0] for p in parts], sizes, order),
            _joined([p[1] for p in parts], sizes, order),
        )
    return out


def _joined(values: Sequence[Array], sizes: Sequence[int], order: Array) -> Array:
    full = [np.broadcast_to(v, (*v.shape[:-1], n)) for v, n in zip(values, sizes, strict=True)]
    return np.concatenate(full, axis=-1).take(order, axis=-1)


# --- in memory ------------------------------------------------------------------------------------


def shadows_of(wave: Wave, space: str) -> dict[int, Array] | None:
    """Views of the shadow bytes of a space, if some may be undefined."""
    if space == "shared":
        return None if wave.shared_complete() else wave.shared_written
    if space == "local":
        return wave.local_written
    return wave.memory.shadow_views if space == "undefined" else None


def gather(group: Group, access: Access, p: Place) -> None:
    """Put the undefined bits of what is read into ``group.loaded``."""
    wave = group.wave
    shadows = shadows_of(wave, p.space)
    if shadows is None:
        return
    word = min(access.size, 8)
    index = p.at // word
    view = shadows[word]
    words = [view.take(index + k) for k in range(access.total // word)]
    whole = view.dtype.type((1 << 8 * word) - 1)
    if all(bool((w == whole).all()) for w in words):
        return
    words = [~w for w in words]
    origin = _origin(group, access, p, words)
    values = (
        [np.stack(words[k : k + 2]) for k in range(0, len(words), 2)]
        if access.size == 16 else words
    )  # fmt: skip
    if p.lanes is None:
        group.loaded = [(v, origin) for v in values]
        return
    old = group.loaded or [None] * len(values)
    mask = np.zeros(group.n, bool)
    mask[p.lanes] = True
    new: list[Unknown | None] = []
    for value, before in zip(values, old, strict=True):
        bits = np.zeros((*value.shape[:-1], group.n), value.dtype)
        numbers = np.zeros(group.n, np.int32)
        bits[..., p.lanes] = value
        numbers[p.lanes] = origin
        new.append(marked(before, (bits, numbers), mask, bits))
    group.loaded = new


def _origin(group: Group, access: Access, p: Place, words: Sequence[Array]) -> Array:
    """The origin by acting lane: that of a stored undefined value, or this load."""
    wave = group.wave
    origins = wave.origins
    number = origins.load("global" if p.space == "undefined" else p.space, access.site)
    addresses = origins.known[number].addresses(wave.size)
    word = words[0].dtype.itemsize
    first = np.full(len(p.at), -1, np.int64)
    for k in range(len(words) - 1, -1, -1):
        bits = words[k]
        lowest = np.bitwise_count((bits & (~bits + bits.dtype.type(1))) - bits.dtype.type(1))
        first = np.where(bits != 0, p.at + k * word + (lowest >> 3), first)
    lanes = group.lanes if p.lanes is None else group.lanes[p.lanes]
    if group.active is not None and p.lanes is None:
        first = np.where(group.active, first, -1)
    seen = first >= 0
    stride = {"shared": wave.shared_stride, "local": wave.local_stride}.get(p.space, 1 << 62)
    where = first % stride
    if p.space == "local":
        where = wave.local_address(where)
    if seen.all():
        addresses[lanes] = where
    else:
        addresses[lanes[seen]] = where[seen]
    kept = wave.kept_origins.get(p.space)
    if kept is None:
        return np.array([number], np.int32)
    stored = kept.take(np.maximum(first, 0) >> 2)
    return np.where((stored != 0) & seen, stored, np.int32(number))


def store_unknown(group: Group, p: Place, at: Array, word: int, bits: Array, origin: Array) -> None:
    """Undefined bits of one word (of the acting lanes) go to shared or local memory."""
    wave = group.wave
    kept = wave.keep_origins(p.space)
    lost = np.broadcast_to(bits != 0, at.shape)
    if lost.any():
        origin = np.broadcast_to(origin, at.shape)
        kept[at[lost] * word >> 2] = origin[lost]
        if p.space == "shared":
            wave.shared_incomplete()


# --- reports --------------------------------------------------------------------------------------


_CURES = {
    "global": "initialise the buffer, or write it before it is read",
    "shared": "write all of it before it is read; if a copy does so, wait for the copy",
}


def observe(
    group: Group,
    found: Sequence[tuple[Unknown, str]],
    mask: BoolArray | None,
    site: Site,
) -> None:
    """Undefined bits of registers matter: a finding for the lanes of ``mask`` (None: all).

    A lane counts once, however many registers are undefined for the same reason.
    """
    told: dict[tuple[str, int], BoolArray] = {}
    for (bits, origin), name in found:
        bad = np.broadcast_to(touched([bits]), (group.n,))
        if mask is not None:
            bad = bad & mask
        if group.active is not None:
            bad = bad & group.active
        if not bad.any():
            continue
        numbers = np.broadcast_to(origin, (group.n,))
        for number in np.unique(numbers[bad]):
            source = group.wave.origins.known[number]
            key = (source.class_, id(source.site))
            lanes = bad & (numbers == number)
            new = lanes & ~told[key] if key in told else lanes
            told[key] = lanes | told[key] if key in told else lanes
            if new.any():
                _report(group, source, new, site, name, _part(bits, new))


def _part(bits: Array, lanes: BoolArray) -> dict[str, Any]:
    """Which bits are undefined in the first of these lanes, if it is not all of them."""
    lane = min(int(lanes.argmax()), bits.shape[-1] - 1)
    mask = sum(int(word) << 64 * k for k, word in enumerate(np.atleast_1d(bits[..., lane])))
    width = 8 * bits.dtype.itemsize * (2 if bits.ndim > 1 else 1)
    if bits.dtype == bool or mask == (1 << width) - 1:
        return {}
    return {"undefined_bits": f"{mask:#0{width // 4 + 2}x}"}


def _report(
    group: Group, origin: Origin, bad: BoolArray, site: Site, name: str, part: dict[str, Any]
) -> None:
    if origin.site is None:
        owner = "" if origin.function == group.routine.name else f" of '{origin.function}'"
        what = f"register {origin.name}{owner}, which was never written"
        if not name:
            what = f"writes what comes from {what}"
        elif name == origin.name and not owner:
            what = f"uses {what}"
        else:
            what = f"uses register {name}, which depends on {what}"
        way = f"through '{origin.function}'" if owner else "that leads here"
        group.finding(
            origin.class_, f"'{site.text}' {what}", site, bad,
            help=f"write {origin.name} on every path {way}", **part,
        )  # fmt: skip
        return
    if origin.class_ == "mask-mismatch":
        _report_absent(group, origin, bad, site, part)
        return
    if origin.class_ == "undefined-result":
        use = f"'{site.text}' at line {site.line} uses the result"
        group.finding(
            origin.class_, f"'{origin.site.text}' {origin.name}; {use}",
            origin.site, bad, help="make sure of the operand first, or do not use the result",
            other_line=site.line, other_column=site.column, **part,
        )  # fmt: skip
        return
    where, values = _where(group, origin, bad)
    fate, cure = _fate(group.wave, origin.name, values)
    use = f"'{site.text}' at line {site.line} uses it"
    if origin.site is site:
        use = "it is used at once"
    group.finding(
        origin.class_,
        f"reads {where}, which {fate}; {use}",
        origin.site,
        bad,
        help=cure,
        other_line=None if origin.site is site else site.line,
        other_column=0 if origin.site is site else site.column,
        space=origin.name,
        **values,
        **part,
    )  # fmt: skip


def _fate(wave: Wave, space: str, values: dict[str, Any]) -> tuple[str, str]:
    """Why memory is undefined at the address that was found, and what to do about it."""
    if space == "global" and "address" in values:
        line = wave.memory.discarded_at(values["address"] - wave.memory.base)
        if line:
            return f"the discard at line {line} destroyed", "write it again before it is read"
    return "was never written", _CURES.get(space, "write all of it before it is read")


def _report_absent(
    group: Group, origin: Origin, bad: BoolArray, site: Site, part: dict[str, Any]
) -> None:
    """A value that a shuffle took from a lane which did not take part matters."""
    shuffle, given = origin.site, origin.given
    assert shuffle is not None and given is not None
    readers = np.flatnonzero(given >= 0)
    lane = int(group.lanes[bad][0])
    if given[lane] < 0:  # another lane has passed the value on
        lane = int(readers[np.searchsorted(readers, lane) % len(readers)])
    group.finding(
        origin.class_,
        f"lane {lane & 31} reads lane {given[lane]}, which does not take part in '{shuffle.text}';"
        f" '{site.text}' at line {site.line} uses the value",
        shuffle,
        bad,
        help="name the source lane in the member mask and let it execute the instruction, or do"
        " not use the value",
        other_line=site.line,
        other_column=site.column,
        **part,
    )


def _where(group: Group, origin: Origin, bad: BoolArray) -> tuple[str, dict[str, Any]]:
    """The byte that the first lane read last, in words and for the report."""
    wave = group.wave
    addresses = origin.addresses(wave.size)
    lane = int(group.lanes[bad][0])
    note = ""
    if origin.given is not None and origin.describe is not None and origin.given[lane] >= 0:
        giver = int(origin.given[lane])
        note = f" ({origin.describe(giver)})"
        lane = lane - lane % 32 + giver
    at = int(addresses[lane])
    if at < 0:  # the value came from another lane
        known = np.flatnonzero(addresses >= 0)
        if not len(known):
            return f"{origin.name} memory", {}
        at = int(addresses[known[np.searchsorted(known, lane) % len(known)]])
    if origin.name == "global":
        allocation = wave.memory.find(at)
        name = allocation.name if allocation else "?"
        offset = at - (allocation.start if allocation else 0)
        return f"byte {offset} of '{name}'", {"address": wave.memory.base + at}
    assert origin.site is not None
    if origin.name == "local" and origin.site.text.startswith("ld.param"):
        note = " (a parameter)"
    return f"{origin.name} address {at:#x}{note}", {"address": at}


def report_stored(
    group: Group, lanes: Array | None, found: Sequence[Unknown | None], site: Site
) -> None:
    """Undefined bits are stored where the host can see them, by the lanes at these positions."""
    mask: BoolArray | None = None
    if lanes is not None:
        mask = np.zeros(group.n, bool)
        mask[lanes] = True
    observe(group, [(u, "") for u in found if u is not None], mask, site)


def follow_atomic(
    group: Group, access: Access, p: Place, operands: Sequence[Unknown | None], scan: str
) -> None:
    """Before an atomic: what it reads goes to ``group.loaded``, what it writes to the shadow.

    The result is undefined where the old value or an operand is; an exchange overwrites the old.
    In global memory, which the host can see, that is a finding.  Of a vector, there is an operand
    for each element.
    """
    wave = group.wave
    gather(group, access, p)
    found = [[u for u in operands if u is not None]]
    if access.count > 1:
        found = [[u] if u is not None else [] for u in operands] or [[]] * access.count
    if scan != "exch" and group.loaded is not None:
        pairs = zip(found, group.loaded, strict=True)
        found = [[*known, old] if old is not None else known for known, old in pairs]
    every = [u for known in found for u in known]
    if p.space in ("global", "undefined"):
        report_stored(group, p.lanes, every, access.site)
        if scan != "exch":
            group.loaded = None
    shadows = shadows_of(wave, p.space)
    if p.space == "shared" and every:
        shadows = wave.shared_written
    if shadows is None:
        return
    word = min(access.size, 8)
    view = shadows[word]
    for part in range(access.total // word):
        at = p.at // word + part
        view[at] = view.dtype.type((1 << 8 * word) - 1)
        if p.space == "undefined":
            continue
        for bits, origin in found[part * word // access.size]:
            lost = _of_lanes(touched([bits]), p)
            view[at[np.broadcast_to(lost, at.shape)]] = 0
            store_unknown(group, p, at, word, lost, _of_lanes(origin, p))


def _of_lanes(value: Array, p: Place) -> Array:
    return value if p.lanes is None or len(value) == 1 else value[p.lanes]

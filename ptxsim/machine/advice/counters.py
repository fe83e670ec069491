"""Counters of memory requests."""

from __future__ import annotations

from collections.abc import Iterable

from .tally import Tally

__all__ = ["counters"]

#: Which kinds of instruction are counted together as wavefronts.
_WAYS = {
    "load": "load", "ldmatrix": "load", "store": "store", "stmatrix": "store",
    "atomic": "atomic", "reduction": "atomic",
}  # fmt: skip
#: What the requests of each kind to shared memory are called.
_SHARED = {
    "load": "shared_load", "ldmatrix": "ldmatrix", "store": "shared_store",
    "stmatrix": "stmatrix", "atomic": "shared_atomic", "reduction": "shared_atomic",
}  # fmt: skip
_KINDS = ("load", "store", "atomic", "reduction", "copy")


def counters(tallies: Iterable[Tally]) -> dict[str, int]:
    """Requests, and their wavefronts and bank conflicts or their sectors, by kind of instruction.

    ``copy`` is what cp.async reads.  Bank conflicts are wavefronts beyond the fewest possible.
    """
    out = {f"{name}_requests": 0 for name in dict.fromkeys(_SHARED.values())}
    for kind in dict.fromkeys(_WAYS.values()):
        out |= {f"shared_{kind}_wavefronts": 0, f"shared_{kind}_bank_conflicts": 0}
    out |= {"shared_wavefronts": 0, "shared_bank_conflicts": 0}
    for kind in _KINDS:
        out |= {f"global_{kind}_requests": 0, f"global_{kind}_sectors": 0}
    for t in tallies:
        if t.space == "shared":
            out[f"{_SHARED[t.kind]}_requests"] += t.requests
            for name in (f"shared_{_WAYS[t.kind]}", "shared"):
                out[f"{name}_wavefronts"] += t.cost
                out[f"{name}_bank_conflicts"] += t.cost - t.best
        else:
            out[f"global_{t.kind}_requests"] += t.requests
            out[f"global_{t.kind}_sectors"] += t.cost
    return out

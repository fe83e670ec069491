"""A wave: whole CTAs that run together, their memories, barriers and special registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..isa.protocol import Array, Site
from ..numerics.bits import pack_lanes
from ..program import Origins, Program
from .faults import Stop
from .memory import GlobalMemory
from .stacks import LOCAL_LIMIT, STACK_TOP, Stacks, fill
from .watch import Watch

__all__ = ["Dimensions", "FindingSink", "Geometry", "Wave"]

Dimensions = tuple[int, int, int]

#: class, message, site, CTAs, warp, lanes, extra values
FindingSink = Callable[..., None]

#: Bytes of local memory that all lanes of a wave may have.
_LOCAL_TOTAL = 4 << 30


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a launch."""

    grid: Dimensions
    block: Dimensions
    cluster: Dimensions = (1, 1, 1)
    dynamic_shared: int = 0
    #: whether the launch or the kernel names the cluster's shape, be it one CTA
    explicit_cluster: bool = False

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def warps(self) -> int:
        """Warps of a CTA, the last one padded."""
        return -(-self.threads // 32)

    def ctaid(self, linear: Array) -> tuple[Array, Array, Array]:
        """CTA coordinates from the linear index; x runs fastest."""
        x, y, _ = self.grid
        return linear % x, linear // x % y, linear // (x * y)


class Wave:
    """State shared by the groups of a wave.  ``ctas`` are linear CTA indices of the grid."""

    def __init__(
        self,
        program: Program,
        geometry: Geometry,
        ctas: Array,
        memory: GlobalMemory,
        sink: FindingSink,
        services: dict[str, Any],
        *,
        reverse: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.program = program
        self.geometry = geometry
        self.ctas = ctas
        self.memory = memory
        self._sink = sink
        self._services = services
        self.reversed = reverse
        self.watch = watch
        self.lanes_per_cta = geometry.warps * 32
        self.size = len(ctas) * self.lanes_per_cta
        lanes = np.arange(self.size, dtype=np.int64)
        if geometry.threads != self.lanes_per_cta:
            lanes = lanes[lanes % self.lanes_per_cta < geometry.threads]
        self.all_lanes = lanes
        exists = np.zeros(self.size, bool)
        exists[lanes] = True
        self.alive = exists
        self.live_bits = pack_lanes(exists.reshape(-1, 32))
        self.live_count = exists.reshape(len(ctas), -1).sum(axis=1)
        self.shared_size = program.shared.size(geometry.dynamic_shared)
        self.shared_stride = max(-(-self.shared_size // 128) * 128, 128)
        self.shared = np.zeros(len(ctas) * self.shared_stride, np.uint8)
        self.shared_views = _views(self.shared)
        #: ones for the bits of shared memory that were written, where undefined bits are followed
        self.shared_written: dict[int, Array] | None = None
        #: the same for local memory
        self.local_written: dict[int, Array] | None = None
        self.checked = program.origins is not None
        #: where stored undefined bits came from: a number for each 4 bytes of a space
        self.kept_origins: dict[str, Array] = {}
        self._gathers_left = 0
        self._all_written = False
        if self.checked:
            written = np.zeros_like(self.shared).reshape(len(ctas), -1)
            written[:, self.shared_size :] = 0xFF
            self.shared_written = _views(written.reshape(-1))
        self.local_stride = 0
        #: how much of each lane's stretch is for frames, from its low end, and for the stack of
        #: alloca, from its high end; the stacks, if there was an alloca
        self.local_frames = 0
        self.local_stack = 0
        self.stacks: Stacks | None = None
        self.local = np.zeros(0, np.uint8)
        self.local_views: dict[int, Array] = {}
        self._special: dict[str, Array] = {}
        self.scheduler: Any = None

    # --- memory ---------------------------------------------------------------------------------

    def reserve_local(self, frames: int, stack: int, site: Site | None, lanes: Array) -> None:
        """Make room for the frames that these lanes need, and for the stack of alloca."""
        size = frames + stack
        frames, stack = max(frames, self.local_frames), max(stack, self.local_stack)
        if size > LOCAL_LIMIT or (frames + stack) * self.size > _LOCAL_TOTAL:
            self.report(
                "stack-overflow",
                f"the call stack needs {size} bytes of local memory a thread",
                site,
                lanes,
                fatal=True,
            )
        if frames + stack > self.local_stride:
            self._grow_local(max(64, 1 << (frames + stack - 1).bit_length()))
        self.local_frames = frames
        if stack > self.local_stack:  # by more than asked for, since it may go on like this
            self.local_stack = min(
                max(-(-stack // 16) * 16, 2 * self.local_stack),
                (self.local_stride - frames) // 16 * 16,
            )

    def _grow_local(self, stride: int) -> None:
        self.local = self._widened(self.local, stride, 1)
        self.local_views = _views(self.local)
        if self.checked:
            written = np.zeros(0, np.uint8) if self.local_written is None else self.local_written[1]
            self.local_written = _views(self._widened(written, stride, 1))
            kept = self.kept_origins.get("local")
            if kept is not None:
                self.kept_origins["local"] = self._widened(kept, stride, 4)
        self.local_stride = stride

    def _widened(self, old: Array, stride: int, unit: int) -> Array:
        """Something for each ``unit`` bytes of local memory, for a longer stretch of each lane."""
        grown = np.zeros((self.size, stride // unit), old.dtype)
        if len(old):
            rows = old.reshape(self.size, -1)
            stack = self.local_stack // unit
            low = rows.shape[1] - stack
            grown[:, :low] = rows[:, :low]
            grown[:, stride // unit - stack :] = rows[:, low:]
        return grown.reshape(-1)

    def give_up_local(self) -> None:
        """Local memory has ended: let go of what may be the largest part of a wave."""
        self.local, self.local_views, self.local_written = np.zeros(0, np.uint8), {}, None
        self.kept_origins.pop("local", None)
        self.stacks = None
        self._services.pop("stacks", None)

    def stack_used(self, lanes: Array) -> int:
        """Bytes of local memory that alloca has given the lane of these that has most."""
        return 0 if self.stacks is None else self.stacks.used(lanes)

    def local_address(self, offset: Array) -> Array:
        """The local addresses at these places of the stretches of lanes."""
        if not self.local_stack:
            return offset
        moved = offset + (STACK_TOP - self.local_stride)
        return np.where(offset >= self.local_stride - self.local_stack, moved, offset)

    # --- undefined bits -------------------------------------------------------------------------

    @property
    def origins(self) -> Origins:
        """Where undefined bits come from; only where they are followed."""
        assert self.program.origins is not None
        return self.program.origins

    def keep_origins(self, space: str) -> Array:
        """The numbers of a space, to be changed."""
        if space not in self.kept_origins:
            size = len(self.shared if space == "shared" else self.local)
            self.kept_origins[space] = np.zeros(size // 4, np.int32)
        return self.kept_origins[space]

    def shared_complete(self) -> bool:
        """Whether every byte of shared memory is written; looked up now and then only."""
        if self.shared_written is None or self._all_written:
            return True
        self._gathers_left -= 1
        if self._gathers_left < 0:
            self._gathers_left = 8 + len(self.shared) // 65536
            words = self.shared_written[8]
            self._all_written = bool((words == ~np.uint64(0)).all())
        return self._all_written

    def shared_incomplete(self) -> None:
        """Undefined bits were stored to shared memory."""
        self._all_written = False

    def mark_written(self, at: Array, size: int) -> None:
        """``size`` bytes at each of these offsets into shared memory are written by a copy."""
        if self.shared_written is not None and not self._all_written:
            for k in range(size):
                self.shared_written[1][at + k] = 0xFF

    def mark_copied(self, at: Array, source: Array, reads: Array | None = None) -> None:
        """Single bytes of shared memory are copied from the arena, or filled where not ``reads``.

        Undefined bytes stay undefined.
        """
        if self.shared_written is None:
            return
        shadow = np.full(len(at), 0xFF, np.uint8)
        chosen = slice(None) if reads is None else reads
        shadow[chosen] = self.memory.shadow[source[chosen]]
        self.shared_written[1][at] = shadow
        if (shadow != 0xFF).any():
            self._all_written = False

    def forget_local(self, lanes: Array, begin: int, end: int) -> None:
        """A new frame of these lanes: its bytes are undefined."""
        if self.local_written is None or begin >= end:
            return
        self.local_written[1].reshape(self.size, -1)[lanes, begin:end] = 0
        kept = self.kept_origins.get("local")
        if kept is not None:
            kept.reshape(self.size, -1)[lanes, begin // 4 : -(-end // 4)] = 0

    def forget_stack(self, lanes: Array, begin: Array, end: Array) -> None:
        """New memory of alloca, at local addresses for each lane: its bytes are undefined."""
        if self.local_written is None:
            return
        moved = self.local_stride - STACK_TOP
        fill(self.local_written[1].reshape(self.size, -1), lanes, begin + moved, end + moved, 0)
        kept = self.kept_origins.get("local")
        if kept is not None:
            last = -(-(end + moved) // 4)
            fill(kept.reshape(self.size, -1), lanes, (begin + moved) // 4, last, 0)

    def service(self, name: str) -> Any:
        """A part of the machine by name."""
        return self._services[name]

    # --- special registers ----------------------------------------------------------------------

    def cta_of(self, lanes: Array) -> Array:
        """The CTA of lanes, counted within the wave."""
        return lanes // self.lanes_per_cta

    def special(self, name: str, group: Any) -> Array:
        """A special register over the whole wave (``[size]``) or one value for all."""
        value = self._special.get(name)
        if value is None:
            value, keep = self._compute(name, group)
            if keep:
                self._special[name] = value
        return value

    def _compute(self, name: str, group: Any) -> tuple[Array, bool]:
        g = self.geometry
        stem, _, component = name.partition(".")
        axis = "xyz".find(component) if component else -1
        if component == "w":
            return _one(0), True
        if stem == "ntid":
            return _one(g.block[axis]), True
        if stem == "nctaid":
            return _one(g.grid[axis]), True
        lane = np.arange(self.size, dtype=np.int64)
        thread = lane % self.lanes_per_cta
        if stem == "tid":
            x, y, _ = g.block
            if g.block[axis] == 1:
                return _one(0), True
            return _u32((thread % x, thread // x % y, thread // (x * y))[axis]), True
        if stem == "ctaid":
            ids = g.ctaid(self.ctas)[axis]
            return self._per_cta(ids), True
        if stem in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
            ids = g.ctaid(self.ctas)[axis]
            size = g.cluster[axis]
            per = {
                "clusterid": ids // size,
                "cluster_ctaid": ids % size,
                "nclusterid": np.array([g.grid[axis] // size]),
                "cluster_nctaid": np.array([size]),
            }[stem]
            return self._per_cta(per), True
        if name == "cluster_ctarank":
            at = [i % s for i, s in zip(g.ctaid(self.ctas), g.cluster, strict=True)]
            return self._per_cta(at[0] + g.cluster[0] * (at[1] + g.cluster[1] * at[2])), True
        if name == "cluster_nctarank":
            return _one(g.cluster[0] * g.cluster[1] * g.cluster[2]), True
        if name == "is_explicit_cluster":
            return np.array([g.explicit_cluster]), True
        if name == "laneid":
            return _u32(lane & 31), True
        if name == "warpid":
            return _u32(thread >> 5), True
        if name.startswith("lanemask_"):
            bit = np.uint32(1) << _u32(lane & 31)
            below = bit - np.uint32(1)
            masks = {"eq": bit, "lt": below, "le": below | bit, "ge": ~below, "gt": ~(below | bit)}
            return masks[name[9:]], True
        if name in ("total_smem_size", "aggr_smem_size"):
            unit = self.service("shared_unit")
            return _one(-(-self.shared_size // unit) * unit), True
        if name == "dynamic_smem_size":
            return _one(g.dynamic_shared), True
        if name in (
            "clock",
            "clock64",
            "clock_hi",
            "globaltimer",
            "globaltimer_lo",
            "globaltimer_hi",
        ):
            now = int(self.service("clock")())
            if name.endswith("_hi"):
                return _one(now >> 32), False
            if name in ("clock64", "globaltimer"):
                return np.array([now], np.uint64), False
            return _one(now), False
        if name == "gridid" or name == "current_graph_exec" or name.endswith("_64"):
            return np.array([0], np.uint64), True
        fixed = {"nwarpid": 64, "nsmid": 132, "smid": 0}
        return _one(fixed.get(name, 0)), True

    def _per_cta(self, values: Array) -> Array:
        if len(np.unique(values)) == 1:
            return _one(int(values[0]))
        return np.repeat(values, self.lanes_per_cta).astype(np.uint32)

    # --- lanes ----------------------------------------------------------------------------------

    def retire(self, lanes: Array) -> None:
        """These lanes have exited."""
        self.alive[lanes] = False
        if len(lanes) == len(self.all_lanes):
            self.live_bits[:] = 0
            self.live_count[:] = 0
            return
        alive = self.alive.reshape(-1, 32)
        warps = np.unique(lanes >> 5)
        bits = pack_lanes(alive[warps])
        self.live_bits[warps] = bits
        self.live_count -= np.bincount(self.cta_of(lanes), minlength=len(self.ctas))

    # --- reports --------------------------------------------------------------------------------

    def report(
        self,
        class_: str,
        message: str,
        site: Site | None,
        lanes: Array,
        *,
        help: str | None = None,
        fatal: bool = False,
        **values: Any,
    ) -> None:
        """Put a finding about these lanes of the wave into the log."""
        first = int(lanes[0]) if len(lanes) else 0
        warp = first >> 5
        same = lanes[(lanes >> 5) == warp] if len(lanes) else lanes
        ctas = np.unique(self.cta_of(lanes))[:8]
        x, y, z = self.geometry.ctaid(self.ctas[ctas])
        self._sink(
            class_,
            message,
            site,
            ctas=tuple((int(a), int(b), int(c)) for a, b, c in zip(x, y, z, strict=True)),
            warp=warp % self.geometry.warps,
            lanes=tuple(int(lane) & 31 for lane in same),
            count=len(lanes),
            help=help,
            **values,
        )
        if fatal:
            raise Stop

    def count_more(self, class_: str, site: Site | None, count: int, **values: Any) -> None:
        """Add to the count of a finding that was reported before."""
        self._sink(class_, "", site, count=count, **values)


def _views(data: Array) -> dict[int, Array]:
    return {s: data.view(f"u{s}") for s in (1, 2, 4, 8)}


def _one(value: int) -> Array:
    return np.array([value & 0xFFFFFFFF], np.uint32)


def _u32(values: Array) -> Array:
    return values.astype(np.uint32)

"""What CTAs of a cluster do with each other (PTX ISA 9.1): checked, not executed.

Addresses in other CTAs, barriers of the cluster, asynchronous stores and reductions, and the
control of cluster launches.  Floors were measured.
"""

from __future__ import annotations

from ..types import SCALAR_TYPES
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_DATA = "Data Movement and Conversion Instructions: "
_P = "Parallel Synchronization and Communication Instructions: "
_SPACE = "space?:{shared::cluster}"
_SIGNAL = "mbarrier::complete_tx::bytes"
_LARGEST = 128


class _Cluster(Instruction):
    unsupported = "clusters are not modelled"

    def check_symbol(self, name: str, space: str, m: Mods) -> str | None:
        """A variable of the cluster is in shared memory."""
        if name != "a":
            return super().check_symbol(name, space, m)
        return None if space == "shared" else f"the variable is in .{space}, not in shared memory"


@instruction("mapa", isa=_DATA + "mapa", floor="7.8+sm_90")
class Mapa(_Cluster):
    """The address of the same variable in another CTA of the cluster."""

    forms = (Form(f"{_SPACE} type:{{u32 u64}}", "=d.type, a.type, rank.u32"),)


@instruction("getctarank", isa=_DATA + "getctarank", floor="7.8+sm_90")
class Getctarank(_Cluster):
    """The rank of the CTA whose shared memory an address is in."""

    forms = (Form(f"{_SPACE} type:{{u32 u64}}", "=d.u32, a.type"),)


@instruction("barrier.cluster.arrive", isa=_P + "barrier.cluster", floor="7.8+sm_90")
class BarrierClusterArrive(_Cluster):
    """Arrive at the barrier of the cluster."""

    forms = (Form("sem?:{release@8.0 relaxed@8.0} aligned?", ""),)


@instruction("barrier.cluster.wait", isa=_P + "barrier.cluster", floor="7.8+sm_90")
class BarrierClusterWait(_Cluster):
    """Wait for all threads of the cluster to arrive."""

    forms = (Form("sem?:{acquire@8.0} aligned?", ""),)


class _Async(_Cluster):
    def check(self, m: Mods) -> str | None:
        """An access has at most 128 bits; .release has a scope, and .mmio needs it."""
        if m.vec and SCALAR_TYPES[m.type].bits * int(m.vec[1:]) > _LARGEST:
            return f".{m.vec}.{m.type} has more than {_LARGEST} bits"
        if m.sem == "release" and not m.scope:
            return ".release needs a scope"
        if m.mmio and not m.sem:
            return ".mmio needs .release"
        return None


#: Release stores and reductions of global memory.
_GLOBAL = "mmio? sem{}:{{release}} scope?:{{gpu sys}} space?:{{global}}"
_IN_CLUSTER = f"sem:{{relaxed}} scope:{{cluster}} {_SPACE} {_SIGNAL}"
_OPERATIONS = (
    "op:{add} type:{u32 s32 u64 s64}",
    "op:{min max} type:{u32 s32}",
    "op:{inc dec} type:{u32}",
    "op:{and or xor} type:{b32}",
)


@instruction("st.async", isa=_DATA + "st.async", floor="8.1+sm_90")
class StAsync(_Async):
    """Store without waiting: in the cluster with a signal to an mbarrier, or released globally."""

    forms = (
        Form(
            f"weak? {_SPACE} {_SIGNAL} vec?:{{v2 v4}} type:{{b32 b64 u32 u64 s32 s64 f32 f64}}",
            "[a], b.type*vec, [mbar]",
        ),
        Form(f"weak? {_SPACE} {_SIGNAL} type:{{b128}}", "[a], b.type, [mbar]", floor="9.2"),
        Form(
            f"{_GLOBAL.format('?')} type:{{b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64}}",
            "[a], b.type", floor="8.7+sm_100",
        ),
    )  # fmt: skip


@instruction("red.async", isa=_DATA + "red.async", floor="8.1+sm_90")
class RedAsync(_Async):
    """Combine without waiting: in the cluster with a signal to an mbarrier, or globally."""

    forms = (
        *(Form(f"{_IN_CLUSTER} {what}", "[a], b.type, [mbar]") for what in _OPERATIONS),
        *(
            Form(f"{_GLOBAL.format('')} {what}", "[a], b.type", floor="8.7+sm_100")
            for what in _OPERATIONS
        ),
    )


# --- launches -------------------------------------------------------------------------------------


@instruction(
    "clusterlaunchcontrol.try_cancel.async",
    isa=_P + "clusterlaunchcontrol.try_cancel",
    floor="8.6+sm_100",
)
class ClusterlaunchcontrolTryCancelAsync(_Cluster):
    """Take over the work of a cluster that has not begun."""

    _ALL = "8.6+sm_100a/sm_100f/sm_110a/sm_110f/sm_120a/sm_120f"
    forms = (
        Form(
            f"space?:{{shared::cta}} {_SIGNAL} all?:{{multicast::cluster::all@{_ALL}}} b128",
            "[a], [mbar]",
        ),
    )


@instruction(
    "clusterlaunchcontrol.query_cancel",
    isa=_P + "clusterlaunchcontrol.query_cancel",
    floor="8.6+sm_100",
)
class ClusterlaunchcontrolQueryCancel(_Cluster):
    """Ask whether work was taken over, and which."""

    _CTA = "query:{get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z}"
    forms = (
        Form("is_canceled type:{pred} source:{b128}", "=p.type, a.source"),
        Form(f"{_CTA} type:{{b32}} source:{{b128}}", "=d.type, a.source"),
        Form("get_first_ctaid v4 type:{b32} source:{b128}", "=~d.type*4, a.source"),
    )

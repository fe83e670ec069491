"""Special registers (PTX ISA 9.1, Special Registers): name, width and floor.

The floors are measured with the assembler (a target that lacks one is refused).
"""

from __future__ import annotations

from ..targets import Floor

__all__ = ["SPECIAL_REGISTERS", "is_special_register"]


def _table() -> dict[str, tuple[int, Floor]]:
    out: dict[str, tuple[int, Floor]] = {}

    def add(names: str, width: int = 32, floor: str = "1.0") -> None:
        for name in names.split():
            out[name] = (width, Floor.parse(floor))

    for vector in ("tid", "ntid", "ctaid", "nctaid"):
        add(" ".join(f"{vector}.{c}" for c in "xyzw"))
    for vector in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
        add(" ".join(f"{vector}.{c}" for c in "xyzw"), floor="7.8+sm_90")
    add("cluster_ctarank cluster_nctarank", floor="7.8+sm_90")
    add("is_explicit_cluster", 1, "7.8+sm_90")
    add("laneid warpid nwarpid smid nsmid")
    add("lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt", floor="2.0+sm_20")
    add("gridid", 64)
    add("clock")
    add("clock_hi", floor="5.0+sm_20")
    add("clock64", 64, "2.0+sm_20")
    add(" ".join(f"pm{n}" for n in range(4)))
    add(" ".join(f"pm{n}" for n in range(4, 8)), floor="3.0+sm_20")
    add(" ".join(f"pm{n}_64" for n in range(8)), 64, "4.0+sm_50")
    add(" ".join(f"envreg{n}" for n in range(32)))
    add("globaltimer", 64, "3.1+sm_30")
    add("globaltimer_lo globaltimer_hi", 32, "3.1+sm_30")
    add("total_smem_size dynamic_smem_size", 32, "4.1+sm_20")
    add("aggr_smem_size", 32, "8.1+sm_90")
    add(
        "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap",
        32,
        "7.6+sm_80",
    )
    add("reserved_smem_offset_0 reserved_smem_offset_1", 32, "7.6+sm_80")
    add("current_graph_exec", 64, "8.0+sm_50")
    add("locality_domain_id", 32, "9.5+sm_100")
    return out


SPECIAL_REGISTERS: dict[str, tuple[int, Floor]] = _table()

_NAMES = frozenset("%" + name.partition(".")[0] for name in SPECIAL_REGISTERS)


def is_special_register(name: str) -> bool:
    """Whether a name is that of a special register, or of a vector of them: ``%tid``."""
    return name in _NAMES

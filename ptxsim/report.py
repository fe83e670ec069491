"""What a launch reports: findings, outputs and counters, as values and as JSON.

Findings come from the machine one by one and for many lanes; :class:`FindingLog` merges them, so
that a report has one entry per fault of the program and not one per thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._version import __version__
from .diagnostics import Severity, SourcePlace
from .errors import FindingsError

__all__ = [
    "FINDING_CODES",
    "MAX_CTAS",
    "PROFILER_NAMES",
    "Finding",
    "FindingLog",
    "LeftOut",
    "Output",
    "Report",
    "compress_lanes",
    "without_consequences",
]

#: The stable code of each class of finding; ``PTX300`` stands for a class without one of its own.
FINDING_CODES: Mapping[str, str] = {
    "trap": "PTX301",
    "mismatch": "PTX302",
    "deadlock": "PTX303",
    "step-limit": "PTX304",
    "stack-overflow": "PTX305",
    "bad-stackrestore": "PTX306",
    "race-shared": "PTX310",
    "race-global": "PTX311",
    "async-race": "PTX312",
    "proxy-fence": "PTX313",
    "nc-coherence": "PTX314",
    "same-value-write": "PTX315",
    "idle-wait": "PTX316",
    "unwaited-copy": "PTX317",
    "copy-size": "PTX318",
    "mask-mismatch": "PTX320",
    "collective-divergence": "PTX321",
    "barrier-divergence": "PTX322",
    "barrier-args": "PTX323",
    "mbarrier": "PTX324",
    "wgmma-sync": "PTX325",
    "wmma-precondition": "PTX326",
    "bulk-args": "PTX327",
    "wmma-fragment": "PTX328",
    "sparse-metadata": "PTX329",
    "misaligned-shared": "PTX330",
    "misaligned-global": "PTX331",
    "misaligned-local": "PTX332",
    "misaligned-param": "PTX333",
    "misaligned-const": "PTX334",
    "oob-shared": "PTX340",
    "oob-global": "PTX341",
    "oob-local": "PTX342",
    "oob-param": "PTX343",
    "oob-const": "PTX344",
    "write-to-readonly": "PTX345",
    "bad-free": "PTX346",
    "uninit-register": "PTX350",
    "uninit-shared": "PTX351",
    "uninit-global": "PTX352",
    "uninit-local": "PTX353",
    "bad-branch-index": "PTX360",
    "bad-call": "PTX361",
    "scale-selector": "PTX362",
    "undefined-result": "PTX363",
    "uni-divergence": "PTX364",
    "schedule-dependent": "PTX370",
    "hardware-mismatch": "PTX371",
    "rounding-not-established": "PTX380",
    "bank-conflict": "PTX390",
    "uncoalesced": "PTX391",
    "redundant-barrier": "PTX392",
    "low-activity": "PTX393",
    "exited-store": "PTX394",
    "unsupported": "PTX400",
}

#: Counters by the names that profilers give to what they count on a GPU, where machine
#: instructions are counted; ours count those of PTX.
PROFILER_NAMES: Mapping[str, str] = {
    "smsp__inst_executed.sum": "warp_instructions",
    "smsp__thread_inst_executed.sum": "thread_instructions",
    "smsp__thread_inst_executed_pred_on.sum": "thread_instructions_predicated_on",
    "smsp__inst_executed_op_shared_ld.sum": "shared_load_requests",
    "smsp__inst_executed_op_shared_st.sum": "shared_store_requests",
    "smsp__inst_executed_op_ldsm.sum": "ldmatrix_requests",
    "smsp__inst_executed_op_ldgsts.sum": "global_copy_requests",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "shared_wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "shared_load_wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "shared_store_wavefronts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "shared_bank_conflicts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "shared_load_bank_conflicts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "shared_store_bank_conflicts",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "global_load_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "global_load_sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "global_store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "global_store_sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum": "global_atomic_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum": "global_atomic_sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum": "global_reduction_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": "global_reduction_sectors",
}

#: How many CTAs are kept with a finding; more would say nothing new.
MAX_CTAS = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of the kernel seen at run time; ``line`` 0 means that it belongs to no line.

    ``lanes`` and ``warp`` are those of the first occurrence, ``count`` is over all lanes.  A race
    has two parties: ``line`` is that of the second access, ``other_line`` that of the first, and
    the ``other_`` fields say who made it.  ``ordering`` is a sentence about their last common
    ordering point, which stands at ``ordering_line``.  ``addresses`` has one address for each of
    ``lanes``, and ``size`` is the number of bytes of the access, where they are known.

    ``source`` is where the instruction comes from in the program that the PTX was compiled from,
    if the PTX says so: the innermost place first, then the calls that were inlined around it;
    ``other_source`` is the same for ``other_line``.
    """

    class_: str
    code: str
    message: str
    line: int
    column: int = 0
    severity: Severity = Severity.ERROR
    other_line: int | None = None
    help: str | None = None
    count: int = 1
    ctas: tuple[tuple[int, int, int], ...] = ()
    warp: int | None = None
    lanes: tuple[int, ...] = ()
    address: int | None = None
    space: str | None = None
    values: Mapping[str, str | int] = field(default_factory=dict)
    other_column: int = 0
    other_cta: tuple[int, int, int] | None = None
    other_warp: int | None = None
    other_lanes: tuple[int, ...] = ()
    ordering: str | None = None
    ordering_line: int | None = None
    addresses: tuple[int, ...] = ()
    size: int | None = None
    source: tuple[SourcePlace, ...] = ()
    other_source: tuple[SourcePlace, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The finding as an object of the JSON report; what stands last is there where known."""
        more: dict[str, Any] = {
            "other_column": self.other_column or None,
            "other_cta": None if self.other_cta is None else list(self.other_cta),
            "other_warp": self.other_warp,
            "other_lanes": list(self.other_lanes) or None,
            "ordering": self.ordering,
            "ordering_line": self.ordering_line,
            "addresses": list(self.addresses) or None,
            "size": self.size,
            "source": [_place(p) for p in self.source] or None,
            "other_source": [_place(p) for p in self.other_source] or None,
        }
        return {
            "class": self.class_,
            "code": self.code,
            "severity": self.severity.value,
            "line": self.line,
            "column": self.column,
            "other_line": self.other_line,
            "message": self.message,
            "help": self.help,
            "count": self.count,
            "ctas": [list(cta) for cta in self.ctas],
            "warp": self.warp,
            "lanes": list(self.lanes),
            "address": self.address,
            "space": self.space,
            "values": dict(self.values),
            **{name: value for name, value in more.items() if value is not None},
        }


class FindingLog:
    """Findings in program time, one for each (class, line, other line)."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, int, int | None], Finding] = {}

    def add(self, finding: Finding) -> None:
        """Log a finding, or add its count and CTAs to the one of the same place.

        An error that joins a warning makes it an error.
        """
        key = (finding.class_, finding.line, finding.other_line)
        known = self._findings.get(key)
        if known is None:
            self._findings[key] = replace(finding, ctas=finding.ctas[:MAX_CTAS])
            return
        new = [cta for cta in finding.ctas if cta not in known.ctas]
        self._findings[key] = replace(
            known,
            severity=min(known.severity, finding.severity, key=list(Severity).index),
            count=known.count + finding.count,
            ctas=(*known.ctas, *new)[:MAX_CTAS],
        )

    def add_raw(
        self,
        class_: str,
        message: str,
        site: Any,
        *,
        ctas: tuple[tuple[int, int, int], ...] = (),
        warp: int | None = None,
        lanes: tuple[int, ...] = (),
        count: int = 1,
        help: str | None = None,
        severity: Severity = Severity.ERROR,
        other_line: int | None = None,
        address: int | None = None,
        space: str | None = None,
        other_column: int = 0,
        other_cta: tuple[int, int, int] | None = None,
        other_warp: int | None = None,
        other_lanes: Iterable[int] = (),
        ordering: str | None = None,
        ordering_line: int | None = None,
        addresses: Iterable[int] = (),
        size: int | None = None,
        **values: Any,
    ) -> None:
        """Log what the machine says about an instruction (``site``, or None)."""
        span = getattr(site, "span", None)
        self.add(
            Finding(
                class_=class_,
                code=FINDING_CODES.get(class_, "PTX300"),
                message=message,
                line=0 if site is None else int(site.line),
                column=0 if span is None else int(span.column),
                severity=severity,
                other_line=_number(other_line),
                help=help,
                count=int(count),
                ctas=ctas,
                warp=warp,
                lanes=lanes,
                address=_number(address),
                space=space,
                values={name: _plain(value) for name, value in values.items()},
                other_column=int(other_column),
                other_cta=None if other_cta is None else _triple(other_cta),
                other_warp=_number(other_warp),
                other_lanes=tuple(int(lane) for lane in other_lanes),
                ordering=ordering,
                ordering_line=_number(ordering_line),
                addresses=tuple(int(a) for a in addresses),
                size=_number(size),
            )
        )

    def findings(self) -> tuple[Finding, ...]:
        """What was logged, in the order in which it was first seen."""
        return tuple(self._findings.values())


def _place(place: SourcePlace) -> dict[str, Any]:
    known = {"function": place.function or None, "text": place.text}
    return {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        **{name: value for name, value in known.items() if value is not None},
    }


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _triple(cta: Any) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in cta)
    return x, y, z


def without_consequences(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings without those that follow from another: a read that races may read too early.

    Whether it then reads what nobody has written yet depends on the schedule; the race does not.
    A copy that races because nothing waits for it is not said to be unwaited for as well.
    """
    classes = ("race-shared", "race-global", "async-race")
    races = [f for f in findings if f.class_ in classes and f.severity is Severity.ERROR]
    lines = {line for f in races for line in (f.line, f.other_line)}
    follows = ("uninit-shared", "uninit-global", "unwaited-copy")
    pairs = {frozenset((f.line, f.other_line)) for f in races}
    return tuple(
        f
        for f in findings
        if not (f.class_.startswith(follows) and f.line in lines)
        and not (f.class_ == "same-value-write" and frozenset((f.line, f.other_line)) in pairs)
    )


def _plain(value: Any) -> str | int:
    return int(value) if isinstance(value, int | np.integer) else str(value)


@dataclass(slots=True)
class Output:
    """A buffer after a launch; ``dtype`` is a type token of the ISA, such as ``f32``."""

    dtype: str
    shape: tuple[int, ...]
    array: NDArray[Any]
    undefined_bytes: int = 0

    def __post_init__(self) -> None:
        self.dtype = _token(self.dtype)

    def to_json(self) -> dict[str, Any]:
        """The buffer as an object of the JSON report; its contents appear as a digest."""
        data = np.ascontiguousarray(self.array).tobytes()
        return {
            "dtype": self.dtype,
            "shape": [int(n) for n in self.shape],
            "sha256": hashlib.sha256(data).hexdigest(),
            "undefined_bytes": int(self.undefined_bytes),
        }


def _token(dtype: str) -> str:
    """The type token of a NumPy type's name; tokens and other names stay as they are."""
    for name, letter in (("uint", "u"), ("int", "s"), ("float", "f")):
        if dtype.startswith(name) and dtype[len(name) :].isdigit():
            return letter + dtype[len(name) :]
    return dtype


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A finding that counts for nothing: the user knows it (``baseline``) or wants it ignored.

    ``by`` is ``baseline``, ``comment`` or ``option``; ``reason`` is what the user wrote about it.
    """

    finding: Finding
    by: str
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The finding and why it was left out, as an object of the JSON report."""
        return {"by": self.by, "reason": self.reason, "finding": self.finding.to_json()}


@dataclass
class Report:
    """The result of a launch; ``printf`` is the text that the kernel printed.

    ``profile`` gives for each line of the text how many steps ran its instructions and for how
    many lanes in all; ``stopped`` says that the launch ended at a fault; ``left_out`` are findings
    that a baseline or a suppression took from ``findings``; ``device`` describes the GPU that
    made the launch (name, compute capability, driver), None for the simulator.
    """

    file: str
    entry: str
    target: str
    findings: tuple[Finding, ...] = ()
    outputs: dict[str, Output] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    printf: str = ""
    profile: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    stopped: bool = False
    left_out: tuple[LeftOut, ...] = ()
    device: Mapping[str, Any] | None = None

    @property
    def verdict(self) -> str:
        """``clean``, or the class of the first error in program time."""
        for finding in self.findings:
            if finding.severity is Severity.ERROR:
                return finding.class_
        return "clean"

    @property
    def clean(self) -> bool:
        """Whether there is no error; warnings and advice may be there."""
        return self.verdict == "clean"

    @property
    def exit_code(self) -> int:
        """0 clean, 1 for a finding, 4 if the first one is an instruction that is not modelled."""
        return {"clean": 0, "unsupported": 4}.get(self.verdict, 1)

    @property
    def aliases(self) -> dict[str, str]:
        """Names of profilers -> counters of the same meaning, at PTX level (tool ``advice``)."""
        if "warp_instructions" not in self.counters:
            return {}
        return {
            name: counter for name, counter in PROFILER_NAMES.items() if counter in self.counters
        }

    def raise_for_findings(self) -> None:
        """Raise :class:`ptxsim.FindingsError` with all errors, if there is one."""
        errors = [f for f in self.findings if f.severity is Severity.ERROR]
        if errors:
            raise FindingsError(
                "\n".join(
                    f"{self.file}:{f.line}: {f.class_}: {f.message} [{f.code}]"
                    + (f" from {f.source[0]}" if f.source else "")
                    for f in errors
                )
            )

    def to_json(self) -> dict[str, Any]:
        """The report as an object that ``json`` can write."""
        out: dict[str, Any] = {
            "ptxsim": __version__,
            "file": self.file,
            "entry": self.entry,
            "target": self.target,
            "verdict": self.verdict,
            "findings": [f.to_json() for f in self.findings],
            "outputs": {name: output.to_json() for name, output in self.outputs.items()},
            "counters": {name: int(value) for name, value in self.counters.items()},
        }
        if self.aliases:
            out["aliases"] = self.aliases
        if self.printf:
            out["printf"] = self.printf
        if self.device is not None:
            out["device"] = dict(self.device)
        if self.left_out:
            out["left_out"] = [known.to_json() for known in self.left_out]
        return out


def compress_lanes(lanes: tuple[int, ...]) -> str:
    """Lane numbers as ranges.

    >>> compress_lanes((0, 1, 2, 3, 7))
    '0-3,7'
    """
    ordered = sorted(set(lanes))
    parts: list[str] = []
    start = 0
    for i in range(1, len(ordered) + 1):
        if i < len(ordered) and ordered[i] == ordered[i - 1] + 1:
            continue
        first, last = ordered[start], ordered[i - 1]
        parts.append(str(first) if first == last else f"{first}-{last}")
        start = i
    return ",".join(parts)

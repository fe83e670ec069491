"""What a launch reports: findings, outputs and counters, as values and as JSON.

Findings come from the machine one by one and for many lanes; :class:`FindingLog` merges them, so
that a report has one entry per fault of the program and not one per thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._version import __version__
from .diagnostics import Severity
from .errors import FindingsError

__all__ = [
    "FINDING_CODES",
    "MAX_CTAS",
    "Finding",
    "FindingLog",
    "Output",
    "Report",
    "compress_lanes",
]

#: The stable code of each class of finding; ``PTX300`` stands for a class without one of its own.
FINDING_CODES: Mapping[str, str] = {
    "trap": "PTX301",
    "mismatch": "PTX302",
    "deadlock": "PTX303",
    "step-limit": "PTX304",
    "stack-overflow": "PTX305",
    "race-shared": "PTX310",
    "race-global": "PTX311",
    "async-race": "PTX312",
    "proxy-fence": "PTX313",
    "nc-coherence": "PTX314",
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
    "schedule-dependent": "PTX370",
    "rounding-not-established": "PTX380",
    "unsupported": "PTX400",
}

#: How many CTAs are kept with a finding; more would say nothing new.
MAX_CTAS = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of the kernel seen at run time; ``line`` 0 means that it belongs to no line.

    ``lanes`` and ``warp`` are those of the first occurrence, ``count`` is over all lanes.
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

    def to_json(self) -> dict[str, Any]:
        """The finding as an object of the JSON report."""
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
                other_line=None if other_line is None else int(other_line),
                help=help,
                count=int(count),
                ctas=ctas,
                warp=warp,
                lanes=lanes,
                address=None if address is None else int(address),
                space=space,
                values={name: _plain(value) for name, value in values.items()},
            )
        )

    def findings(self) -> tuple[Finding, ...]:
        """What was logged, in the order in which it was first seen."""
        return tuple(self._findings.values())


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


@dataclass
class Report:
    """The result of a launch; ``printf`` is the text that the kernel printed."""

    file: str
    entry: str
    target: str
    findings: tuple[Finding, ...] = ()
    outputs: dict[str, Output] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    printf: str = ""

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

    def raise_for_findings(self) -> None:
        """Raise :class:`ptxsim.FindingsError` with all errors, if there is one."""
        errors = [f for f in self.findings if f.severity is Severity.ERROR]
        if errors:
            raise FindingsError(
                "\n".join(
                    f"{self.file}:{f.line}: {f.class_}: {f.message} [{f.code}]" for f in errors
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
        if self.printf:
            out["printf"] = self.printf
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

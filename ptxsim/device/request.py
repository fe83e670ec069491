"""A launch on a GPU and what it leaves, as plain values and as files of another process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..diagnostics import Diagnostic, Severity, Span
from ..report import FINDING_CODES, Finding
from .probe import DeviceInfo

__all__ = ["DeviceBuffer", "Request", "Result", "finding", "read_request", "read_result",
           "write_request", "write_result"]  # fmt: skip

Bytes = NDArray[np.uint8]
Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """A buffer: its bytes before the launch, and whether the kernel may not write it."""

    name: str
    data: Bytes
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A launch.  ``arguments`` are indices of ``buffers``, or the bytes of a parameter.

    ``timeout`` is in seconds and counts the kernel alone; ``grid`` counts CTAs.
    """

    text: str
    target: str
    entry: str
    grid: Triple
    block: Triple
    cluster: Triple = (1, 1, 1)
    smem: int = 0
    cooperative: bool = False
    buffers: tuple[DeviceBuffer, ...] = ()
    arguments: tuple[int | bytes, ...] = ()
    timeout: float = 30.0
    ordinal: int = 0


@dataclass(slots=True)
class Result:
    """What a launch left: ``buffers`` as in the request, or none if their contents are lost.

    ``refusal`` says why the launch could not be made; ``diagnostics`` are what the assembler of
    the driver says about the text.  ``stopped`` is as in a report.  After ``hung`` the kernel may
    still run, and the driver may not be asked anything.
    """

    device: DeviceInfo | None = None
    buffers: tuple[Bytes, ...] | None = None
    findings: tuple[Finding, ...] = ()
    refusal: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    stopped: bool = False
    hung: bool = False
    printf: str = field(default="", compare=False)


def finding(class_: str, message: str, help: str | None = None, **values: str | int) -> Finding:
    """A finding of a GPU, which knows no line."""
    return Finding(class_, FINDING_CODES[class_], message, 0, help=help, values=values)


# --- files ----------------------------------------------------------------------------------------


def write_request(request: Request, folder: Path) -> None:
    """Write a request as JSON and its buffers as arrays."""
    buffers = [{"name": b.name, "readonly": b.readonly} for b in request.buffers]
    arguments = [a if isinstance(a, int) else a.hex() for a in request.arguments]
    plain = asdict(replace(request, buffers=(), arguments=()))
    _write(folder / "request.json", {**plain, "buffers": buffers, "arguments": arguments})
    _save(folder / "request.npz", tuple(b.data for b in request.buffers))


def read_request(folder: Path) -> Request:
    """The request that was written to a folder."""
    values = _read(folder / "request.json")
    arrays = _load(folder / "request.npz", len(values["buffers"]))
    values["buffers"] = tuple(
        DeviceBuffer(b["name"], data, b["readonly"])
        for b, data in zip(values["buffers"], arrays, strict=True)
    )
    values["arguments"] = tuple(
        a if isinstance(a, int) else bytes.fromhex(a) for a in values["arguments"]
    )
    for name in ("grid", "block", "cluster"):
        values[name] = tuple(values[name])
    return Request(**values)


def write_result(result: Result, folder: Path) -> None:
    """Write a result; the JSON comes last and at once, so that it is there only with the rest."""
    if result.buffers is not None:
        _save(folder / "result.npz", result.buffers)
    values = {
        "device": None if result.device is None else result.device.to_json(),
        "buffers": None if result.buffers is None else len(result.buffers),
        "findings": [
            [f.class_, f.message, f.help, dict(f.values)] for f in result.findings
        ],
        "refusal": result.refusal,
        "diagnostics": [
            [d.code, d.message, asdict(d.span), d.severity.value] for d in result.diagnostics
        ],
        "stopped": result.stopped,
        "hung": result.hung,
    }  # fmt: skip
    _write(folder / "part.json", values)
    (folder / "part.json").replace(folder / "result.json")


def read_result(folder: Path) -> Result | None:
    """The result that was written to a folder, None if there is none."""
    if not (folder / "result.json").exists():
        return None
    values = _read(folder / "result.json")
    device, count = values["device"], values["buffers"]
    return Result(
        device=None if device is None else _device(device),
        buffers=None if count is None else _load(folder / "result.npz", count),
        findings=tuple(finding(c, m, h, **v) for c, m, h, v in values["findings"]),
        refusal=values["refusal"],
        diagnostics=tuple(
            Diagnostic(code, message, Span(**span), Severity(severity))
            for code, message, span, severity in values["diagnostics"]
        ),
        stopped=values["stopped"],
        hung=values["hung"],
    )


def _device(values: Mapping[str, Any]) -> DeviceInfo:
    major, minor = values["compute_capability"]
    return DeviceInfo(values["ordinal"], values["name"], (major, minor), values["driver"])


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values), "utf-8")


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return values


def _save(path: Path, arrays: tuple[Bytes, ...]) -> None:
    named: dict[str, Any] = {f"b{n}": data for n, data in enumerate(arrays)}
    np.savez(path, **named)


def _load(path: Path, count: int) -> tuple[Bytes, ...]:
    with np.load(path, allow_pickle=False) as file:
        return tuple(np.asarray(file[f"b{n}"], np.uint8) for n in range(count))

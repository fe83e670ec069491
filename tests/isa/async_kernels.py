"""A small way to run kernels with mbarriers and bulk copies.

The entry has the pointers ``%out`` and ``%in``, ``%mine`` (of a u32 for each thread of the grid in
``out``), ``%t`` (``%tid.x``), and the shared variables ``mb`` (two mbarriers) and ``s`` (1 KB).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import ptxsim
from ptxsim.diagnostics import Severity, Source
from ptxsim.errors import PtxError
from ptxsim.machine.launch import Buffer, LaunchRecord, run
from ptxsim.machine.watch import Watch
from ptxsim.machine.wave import Geometry
from ptxsim.resolve import resolve
from ptxsim.syntax import parse

__all__ = [
    "LANDINGS", "SCHEDULES", "WAIT", "Recorder", "errors", "kernel_text", "launch", "verdict",
    "watched",
]  # fmt: skip

#: The two ends of when an asynchronous copy may land.
LANDINGS = ("default", "early-async")
SCHEDULES = (*LANDINGS, "reverse", "warp-serial", "random:1", "random:2")

_KERNEL = """\
.version {version}
.target sm_100
.address_size 64
.visible .entry k(.param .u64 out_p, .param .u64 in_p)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<40>, %t;
    .reg .b64 %rd<40>, %out, %in, %mine;
    .shared .align 8 .b64 mb[2];
    .shared .align 128 .b8 s[1024];
    {declare}
    ld.param.u64 %out, [out_p];
    ld.param.u64 %in, [in_p];
    mov.u32 %t, %tid.x;
    mov.u32 %r38, %ctaid.x;
    mov.u32 %r39, %ntid.x;
    mad.lo.u32 %r38, %r38, %r39, %t;
    mad.wide.u32 %mine, %r38, 4, %out;
    setp.ne.u32 %p7, %t, 0;
{body}
    ret;
}}
"""

#: Waits for a phase of ``mb``: a template of a label and a parity.
WAIT = "{0}: mbarrier.try_wait.parity.shared.b64 %p0, [mb], {1}; @!%p0 bra {0};"


def kernel_text(body: str, declare: str = "", version: str = "8.6") -> str:
    """The module of an entry ``k`` with this body."""
    return _KERNEL.format(declare=declare, body=body, version=version)


def launch(
    body: str,
    *,
    block: int = 32,
    grid: int = 1,
    declare: str = "",
    out: Any = None,
    data: Any = None,
    tools: str = "none",
    version: str = "8.6",
    **options: Any,
) -> tuple[ptxsim.Report, Any]:
    """Run a kernel with this body; the report and what is in ``out``."""
    out = np.zeros(block * grid, np.uint32) if out is None else out
    data = np.arange(256, dtype=np.uint32) if data is None else data
    kernel = ptxsim.assemble(kernel_text(body, declare, version)).kernel()
    report = kernel.launch(grid=grid, block=block, args=[out, data], tools=tools, **options)
    return report, out


def errors(report: ptxsim.Report) -> list[tuple[str, str]]:
    """Class and message of each error."""
    return [(f.class_, f.message) for f in report.findings if f.severity is Severity.ERROR]


class Recorder(Watch):
    """Keeps the events of mbarriers, copies and fences, their arguments as plain values."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        kept = ("mbarrier_", "bulk_", "copies_", "proxy_", "fence")
        if not name.startswith(kept):
            return super().__getattribute__(name)
        events = super().__getattribute__("events")

        def note(wave: Any, *arguments: Any) -> None:
            plain = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
            events.append((name, *(a for a in plain if not hasattr(a, "span"))))

        return note


def watched(
    body: str, watch: Watch, *, block: int = 32, schedule: str = "default", declare: str = ""
) -> list[tuple[str, str]]:
    """Run a kernel with this body under a watch; class and message of what was found."""
    found: list[tuple[str, str]] = []

    def sink(class_: str, message: str, *rest: Any, **values: Any) -> None:
        found.append((class_, message))

    module = ptxsim.assemble(kernel_text(body, declare)).typed
    buffers = tuple(Buffer(name, np.zeros(1024, np.uint8)) for name in ("out", "in"))
    geometry = Geometry((1, 1, 1), (block, 1, 1))
    run(LaunchRecord(module, "k", geometry, buffers, schedule=schedule, watch=watch), sink)
    return found


_WRAPPER = (Path(__file__).parents[1] / "data" / "lexical" / "wrapper.ptx").read_text()


def verdict(line: str, version: str = "9.5", target: str = "sm_100") -> str:
    """``legal``, ``unsupported`` or the code of the first error of one instruction."""
    text = _WRAPPER.replace(".version 9.5", f".version {version}").replace("sm_100a", target)
    if tuple(map(int, version.split("."))) < (8, 3):  # 128-bit registers came with PTX ISA 8.3
        text = text.replace(".reg .b128 %q<16>;", "")
    text = text.replace("// <insert the line here>", "{" + line + "}")
    try:
        found = resolve(parse(text), Source("line.ptx", text)).diagnostics
    except PtxError as error:
        return error.diagnostics[0].code
    errors = [d.code for d in found if d.code != "PTX400"]
    return errors[0] if errors else "unsupported" if found else "legal"

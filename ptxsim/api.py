"""The Python interface: assemble text, look at its kernels, launch them, simulated or not."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .diagnostics import Diagnostic, Severity, Source
from .errors import PtxError, UsageError
from .machine.advice import Advisor
from .machine.launch import DEFAULT_INSTRUCTIONS, SCHEDULES, WMMA_RULES, Buffer, LaunchRecord, run
from .machine.memory import ARENA
from .machine.races import MAX_LANES, RaceChecker, provenance, traits
from .machine.watch import Watch, combine
from .machine.wave import Dimensions, Geometry
from .report import Finding, FindingLog, Output, Report, without_consequences
from .resolve import resolve
from .resolve.typed import Symbol, TypedFunction, TypedModule
from .syntax import parse
from .syntax.comments import instruction_tags
from .syntax.line_table import LineTable
from .targets import TARGETS

__all__ = ["Kernel", "Module", "Parameter", "assemble", "undefined"]

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
#: Tools that ``all`` leaves out: advice is about speed and would make reports long.
EXTRA_TOOLS = ("advice",)


class UndefinedArray(np.ndarray[Any, Any]):
    """An array whose bytes a kernel may not read before it has written them."""


def undefined(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array for results: zero for NumPy, undefined for the kernel until it is written."""
    return np.zeros(shape, dtype).view(UndefinedArray)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: ``type`` has no dot; ``count`` is None for a scalar."""

    name: str
    type: str
    count: int | None
    pointer: bool
    size: int


def assemble(
    text_or_path: str | Path, target: str | None = None, name: str | None = None
) -> Module:
    """Assemble PTX text, or the file at a path; :class:`PtxError` if the PTX is invalid.

    ``target`` replaces the module's ``.target``.  Instructions that are legal and that ptxsim
    does not model are in ``module.diagnostics``.
    """
    if target is not None and target not in TARGETS:
        raise UsageError(f"unknown target '{target}'; known: {', '.join(TARGETS)}")
    text = str(text_or_path)
    if isinstance(text_or_path, Path) or ("\n" not in text and text.endswith(".ptx")):
        name = name or text
        try:
            text = Path(text_or_path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {name}: {error}") from None
    source = Source(name or "<string>", text)
    typed = resolve(parse(text, source.name), source, target)
    errors = [d for d in typed.diagnostics if d.severity is Severity.ERROR and d.code != "PTX400"]
    if errors:
        raise PtxError(errors, source)
    return Module(typed)


class Module:
    """An assembled module."""

    def __init__(self, typed: TypedModule) -> None:
        self.typed = typed

    @property
    def source(self) -> Source:
        """The text and its name."""
        return self.typed.source

    @cached_property
    def lines(self) -> LineTable:
        """The lines of the program that the text was compiled from, as far as it names them."""
        return LineTable(self.source.text)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings, and instructions that are not modelled (code PTX400)."""
        return self.typed.diagnostics

    @property
    def target(self) -> str:
        """The target, such as ``sm_80``."""
        return str(self.typed.target)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return self.typed.entries

    def kernel(self, name: str | None = None) -> Kernel:
        """A kernel by name; without a name the only one."""
        if name is None:
            if len(self.entries) != 1:
                raise UsageError(f"name one of the entries: {', '.join(self.entries) or 'none'}")
            name = self.entries[0]
        if name not in self.entries:
            raise UsageError(f"no entry '{name}'; there are: {', '.join(self.entries) or 'none'}")
        return Kernel(self, self.typed.functions[name])

    def __getitem__(self, name: str) -> Kernel:
        return self.kernel(name)


class Kernel:
    """An entry of a module, ready to launch."""

    def __init__(self, module: Module, function: TypedFunction) -> None:
        self.module = module
        self._function = function

    @property
    def name(self) -> str:
        """The name of the entry."""
        return self._function.name

    @property
    def source(self) -> Source:
        """The text that it comes from."""
        return self.module.source

    @property
    def params(self) -> tuple[Parameter, ...]:
        """The parameters in order."""
        out = []
        for p in self._function.parameters:
            assert isinstance(p, Symbol)
            out.append(Parameter(p.name, p.type.name, p.count, p.pointer, p.size))
        return tuple(out)

    def launch(
        self,
        *,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        cluster: int | Sequence[int] | None = None,
        smem: int = 0,
        tools: str | Sequence[str] = "all",
        schedule: str = "default",
        max_instructions: int | None = None,
        jobs: int = 1,
        backend: str = "sim",
        wave_ctas: int | None = None,
        wmma_rule: str = "ptx",
        cooperative: bool = False,
        timeout: float = 30.0,
        isolate: bool = True,
    ) -> Report:
        """Run the kernel; arrays among ``args`` are buffers and hold the results afterwards.

        ``grid``, ``block`` and ``cluster`` are counts of CTAs, threads and CTAs; ``smem`` is
        dynamic shared memory in bytes; ``wmma_rule`` says whether tiles of wmma must be aligned as
        the PTX ISA wants (``ptx``) or as the CUDA C++ guide does (``cuda``).  The CTAs of a
        ``cooperative`` launch run at the same time.
        :class:`UsageError` for a launch that cannot be made.

        ``backend="gpu"`` makes the same launch on a GPU.  Tools, schedule and limits of the
        simulator have no effect there, and findings name no line.  A kernel has ``timeout``
        seconds.  With ``isolate`` it runs in a process of its own, so that a fault harms no later
        launch.
        """
        if backend not in ("sim", "gpu"):
            raise UsageError(f"backend '{backend}' is unknown; use 'sim' or 'gpu'")
        if jobs != 1:
            raise UsageError("jobs other than 1 are not available")
        if wmma_rule not in WMMA_RULES:
            raise UsageError(f"unknown wmma rule '{wmma_rule}'; known: {', '.join(WMMA_RULES)}")
        chosen = _check_tools(tools)
        _check_schedule(schedule)
        geometry = self._geometry(grid, block, cluster, smem)
        args = [_array(a) for a in args]
        if len(args) != len(self.params):
            raise UsageError(
                f"'{self.name}' has {len(self.params)} parameters, {len(args)} arguments given"
            )
        arguments = tuple(_argument(p, a) for p, a in zip(self.params, args, strict=True))
        _check_overlap(self.params, args)
        if backend == "gpu":
            return self._launch_on_gpu(geometry, arguments, args, cooperative, timeout, isolate)
        if cooperative:
            wave_ctas = geometry.ctas
        log = FindingLog()
        advisor = Advisor() if "advice" in chosen else None
        watches = () if advisor is None else advisor.watches
        record = LaunchRecord(
            self.module.typed,
            self.name,
            geometry,
            arguments,
            schedule=schedule,
            wave_ctas=wave_ctas,
            max_instructions=max_instructions or DEFAULT_INSTRUCTIONS,
            wmma_rule=wmma_rule,
            initcheck=bool(chosen & {"all", "initcheck"}),
            watch=combine([*self._checks(chosen, args, geometry), *watches]),
            tags=None if advisor is None else _tags(self.module.typed),
            count_guards=advisor is not None,
        )

        def sink(class_: str, *rest: Any, **more: Any) -> None:
            if chosen & {"all", "initcheck"} or not class_.startswith("uninit-"):
                log.add_raw(class_, *rest, **more)

        outcome = run(record, sink)
        counters = _counters(outcome.program)
        if advisor is not None:
            counters |= advisor.counters()
            if not outcome.stopped:
                advisor.report(sink)
        outputs: dict[str, Output] = {}
        for position, value in enumerate(args):
            if not isinstance(value, np.ndarray) or position not in outcome.buffers:
                continue
            data = outcome.contents(position)
            if value.flags.writeable:
                value.reshape(-1).view(np.uint8)[:] = data
            outputs[self.params[position].name] = Output(
                str(value.dtype), value.shape, value, outcome.undefined(position)
            )
        return Report(
            file=self.source.name,
            entry=self.name,
            target=self.module.target,
            findings=_located(without_consequences(log.findings()), self.module.lines),
            outputs=outputs,
            counters=counters,
            printf="".join(outcome.printf),
            profile=_profile(outcome.program),
            stopped=outcome.stopped,
        )

    def _launch_on_gpu(
        self,
        geometry: Geometry,
        arguments: Sequence[Buffer | bytes],
        values: Sequence[Any],
        cooperative: bool,
        timeout: float,
        isolate: bool,
    ) -> Report:
        """The launch on a GPU; ``values`` are the arguments as they were given."""
        from .device import DeviceBuffer, Request, launch

        if self.module.typed.address_size != 64:
            raise UsageError("a GPU runs modules with .address_size 64 only")
        if not (timeout > 0 and math.isfinite(timeout)):
            raise UsageError(f"timeout is a positive number of seconds, not {timeout!r}")
        buffers: dict[tuple[int, int], DeviceBuffer] = {}
        places: dict[int, int] = {}  # position of an argument -> its buffer; one array is one
        for n, a in enumerate(arguments):
            if isinstance(a, Buffer):
                key = a.data.ctypes.data, a.data.size
                buffers.setdefault(key, DeviceBuffer(a.name, a.data, a.readonly))
                places[n] = list(buffers).index(key)
        request = Request(
            _text_for(self.source.text, self.module.target), self.module.target, self.name,
            geometry.grid, geometry.block, geometry.cluster, geometry.dynamic_shared, cooperative,
            tuple(buffers.values()),
            tuple(a if isinstance(a, bytes) else places[n] for n, a in enumerate(arguments)),
            timeout,
        )  # fmt: skip
        result = launch(request, isolate)
        if result.diagnostics:
            raise PtxError(result.diagnostics, self.source)
        outputs: dict[str, Output] = {}
        if result.buffers is not None:
            for n, place in places.items():
                value = values[n]
                if value.flags.writeable:
                    value.reshape(-1).view(np.uint8)[:] = result.buffers[place]
                outputs[self.params[n].name] = Output(str(value.dtype), value.shape, value)
        return Report(
            file=self.source.name,
            entry=self.name,
            target=self.module.target,
            findings=result.findings,
            outputs=outputs,
            printf=result.printf,
            stopped=result.stopped,
            device=None if result.device is None else result.device.to_json(),
        )

    def _checks(self, chosen: set[str], args: Sequence[Any], geometry: Geometry) -> list[Watch]:
        """The checks that listen to a launch."""
        checks: list[Watch] = []
        if chosen & {"all", "racecheck"}:
            if geometry.ctas * geometry.warps * 32 > MAX_LANES:
                raise UsageError(
                    f"the race checker tells {MAX_LANES} threads apart; launch fewer, or choose"
                    " tools without racecheck"
                )
            checks.append(RaceChecker(traits(self.module.typed), self._unwatched(args)))
        return checks

    def _unwatched(self, args: Sequence[Any]) -> frozenset[tuple[int, int]]:
        """Places of loads from arrays that the kernel does not write, one array passed twice seen.

        An integer that is the address of an array may point anywhere: then there are none.
        """
        same: dict[str, str] = {}
        first: dict[int, str] = {}
        for p, value in zip(self.params, args, strict=True):
            if isinstance(value, np.ndarray) and value.shape:
                same[p.name] = first.setdefault(value.ctypes.data, p.name)
            elif p.size == 8 and not isinstance(value, float | np.floating):
                number = value if isinstance(value, int | np.integer) else 0
                if p.count or int(number) >= ARENA:
                    return frozenset()
        return provenance(self._function).unwritten(same)

    def _check_cluster(self, g: Geometry, given: bool) -> None:
        """The cluster against the directives (PTX ISA, Cluster Dimension Directives)."""
        directives = self._function.directives
        required = directives.get("reqnctapercluster")
        if required and (*required, 1, 1)[:3] != g.cluster:
            raise UsageError(
                f"the kernel requires clusters of {required} CTAs (.reqnctapercluster), not"
                f" {g.cluster}"
            )
        if "explicitcluster" in directives and not (given or required):
            raise UsageError("the kernel requires a cluster to be given (.explicitcluster)")
        most = directives.get("maxclusterrank")
        if most and math.prod(g.cluster) > most[0]:
            raise UsageError(
                f"the kernel allows {most[0]} CTAs a cluster (.maxclusterrank), not {g.cluster}"
            )

    def _geometry(self, grid: Any, block: Any, cluster: Any, smem: int) -> Geometry:
        directives = self._function.directives
        shape = cluster
        if shape is None and "reqnctapercluster" in directives:
            shape = directives["reqnctapercluster"]
        g = Geometry(
            _dimensions(grid, "grid"), _dimensions(block, "block"),
            _dimensions(1 if shape is None else shape, "cluster"), smem, shape is not None,
        )  # fmt: skip
        if g.threads > 1024:
            raise UsageError(f"a CTA has at most 1024 threads, block={g.block} has {g.threads}")
        if g.ctas > 1 << 24:
            raise UsageError(f"grid={g.grid} has {g.ctas} CTAs; at most 2^24 are simulated")
        for name, b, c in zip("xyz", g.grid, g.cluster, strict=True):
            if b % c:
                raise UsageError(f"grid {name} = {b} is not a multiple of the cluster's {c}")
        required = directives.get("reqntid")
        if required and (*required, 1, 1)[:3] != g.block:
            raise UsageError(f"the kernel requires {required} threads (.reqntid), not {g.block}")
        most = directives.get("maxntid")
        if most and math.prod(most) < g.threads:
            raise UsageError(f"the kernel allows {most} threads (.maxntid), not {g.block}")
        self._check_cluster(g, cluster is not None)
        total = self.module.typed.shared_layout(self.name).size(smem)
        if not smem >= 0 or total > 228 << 10:
            raise UsageError(f"{total} bytes of shared memory a CTA; at most {228 << 10} exist")
        return g


def _text_for(text: str, target: str) -> str:
    """The text with the target that was asked for in its ``.target`` directive."""
    return re.sub(r"(?m)^(\s*\.target\s+)sm_\w+", rf"\g<1>{target}", text, count=1)


def _check_overlap(params: Sequence[Parameter], args: Sequence[Any]) -> None:
    """One array may be passed twice and is then one buffer; parts that overlap cannot be."""
    spans = sorted(
        (a.ctypes.data, a.ctypes.data + a.nbytes, p.name)
        for p, a in zip(params, args, strict=True)
        if isinstance(a, np.ndarray) and a.shape and a.nbytes
    )
    for (begin, end, name), (other, last, second) in pairwise(spans):
        if other < end and (begin, end) != (other, last):
            raise UsageError(
                f"the arrays for '{name}' and '{second}' overlap; pass the same array, or copies"
            )


def _array(value: Any) -> Any:
    """A CPU tensor that speaks DLPack as the NumPy array that shares its memory."""
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"cannot use {type(value).__name__} as an array: {error}") from None
    return value


def _dimensions(value: Any, what: str) -> Dimensions:
    parts = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(parts) <= 3 or any(int(p) < 1 for p in parts):
        raise UsageError(f"{what} is one to three positive numbers, not {value!r}")
    x, y, z = (*(int(p) for p in parts), 1, 1)[:3]
    return x, y, z


def _check_tools(tools: str | Sequence[str]) -> set[str]:
    """The chosen tools.  Faults that end a launch are reported whatever is chosen."""
    names = tools.split(",") if isinstance(tools, str) else list(tools)
    for name in names:
        if name not in (*TOOLS, *EXTRA_TOOLS, "all", "none"):
            known = ", ".join((*TOOLS, *EXTRA_TOOLS))
            raise UsageError(f"unknown tool '{name}'; known: all, none, {known}")
    return set(names)


def _check_schedule(schedule: str) -> None:
    kind, _, seed = schedule.partition(":")
    if schedule in SCHEDULES[:-1] or (kind == "random" and seed.isdigit()):
        return
    raise UsageError(f"unknown schedule '{schedule}'; known: {', '.join(SCHEDULES)}")


_PYTHON_TYPES = {
    "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "s8": "i1", "s16": "i2", "s32": "i4",
    "s64": "i8", "f32": "f4", "f64": "f8",
}  # fmt: skip


def _argument(parameter: Parameter, value: Any) -> Buffer | bytes:
    """A buffer or the bytes of a parameter."""
    p = parameter
    if isinstance(value, np.ndarray) and value.shape != () and p.count is None:
        if p.size != 8 and p.size != 4:
            raise UsageError(f"parameter '{p.name}' is .{p.type}; an array needs a pointer")
        if not value.flags.c_contiguous:
            raise UsageError(f"the array for '{p.name}' is not C-contiguous")
        data = value.reshape(-1).view(np.uint8)
        defined = not isinstance(value, UndefinedArray)
        return Buffer(p.name, data, not value.flags.writeable, defined)
    if value is None:
        return bytes(p.size)
    if isinstance(value, bytes | bytearray):
        data_bytes = bytes(value)
    elif isinstance(value, np.generic | np.ndarray):
        data_bytes = value.tobytes()
    elif hasattr(value, "value") and type(value).__module__ == "ctypes":
        data_bytes = bytes(value)
    elif isinstance(value, bool | int | float):
        if p.type not in _PYTHON_TYPES or p.count is not None:
            raise UsageError(
                f"parameter '{p.name}' is .{p.type}, which leaves the type of {value!r} open:"
                " give a NumPy scalar"
            )
        try:
            data_bytes = np.array(value, _PYTHON_TYPES[p.type]).tobytes()
        except (OverflowError, ValueError):
            raise UsageError(f"{value!r} does not fit parameter '{p.name}' (.{p.type})") from None
        if isinstance(value, float) and p.type[0] != "f":
            raise UsageError(f"{value!r} is no value for parameter '{p.name}' (.{p.type})")
    else:
        raise UsageError(f"{type(value).__name__} is no argument for parameter '{p.name}'")
    if len(data_bytes) != p.size:
        raise UsageError(
            f"parameter '{p.name}' has {p.size} bytes, the argument has {len(data_bytes)}"
        )
    return data_bytes


def _located(findings: tuple[Finding, ...], lines: LineTable) -> tuple[Finding, ...]:
    """Findings with the places of the program that the PTX was compiled from."""
    if not findings or not lines:
        return findings
    return tuple(
        replace(
            f,
            source=lines.at(f.line, f.column),
            other_source=lines.at(f.other_line or 0, f.other_column),
        )
        for f in findings
    )


def _tags(module: TypedModule) -> dict[tuple[int, int], str]:
    """The tags of instructions by line and column of the opcode."""
    code = (i for f in module.functions.values() for i in f.instructions or ())
    places = ((i.span.line, i.span.column) for i in code)
    return instruction_tags(module.source.text, places)


def _counters(program: Any) -> dict[str, int]:
    threads = warps = 0
    for routine in {id(r): r for r in program.routines.values()}.values():
        for block in routine.blocks:
            threads += block.lane_executions * block.length
            warps += block.executions * block.length
    return {"thread_instructions": threads, "steps": warps}


def _profile(program: Any) -> dict[int, tuple[int, int]]:
    """Line -> steps and lanes that ran its instructions; they add up to the counters."""
    out: dict[int, tuple[int, int]] = {}
    for routine in {id(r): r for r in program.routines.values()}.values():
        for block in routine.blocks:
            for line in block.lines:
                steps, lanes = out.get(line, (0, 0))
                out[line] = (steps + block.executions, lanes + block.lane_executions)
    return dict(sorted(out.items()))

"""One launch: memory is laid out, the entry compiled, and its CTAs run wave after wave."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..isa.protocol import Array
from ..program import Link, Program, compile_program
from ..resolve.typed import Symbol, TypedModule
from ..targets import Target
from ..windows import CODE_BASE
from .async_copies import AsyncCopies
from .builtins import Heap
from .bulk_copies import BulkCopies
from .faults import Stop
from .group import Group
from .mbarriers import Mbarriers
from .memory import Allocation, GlobalMemory
from .scheduler import Limits, Scheduler
from .stacks import LOCAL_LIMIT, Stacks
from .watch import Watch
from .wave import FindingSink, Geometry, Wave

__all__ = [
    "DEFAULT_INSTRUCTIONS",
    "SCHEDULES",
    "WMMA_RULES",
    "Buffer",
    "LaunchRecord",
    "Outcome",
    "run",
]

#: Lanes that a wave should have: long enough to hide NumPy's cost per call, short enough that the
#: registers of a loop stay in cache (measured on the benchmark kernels).
WAVE_LANES = 1 << 14

#: PTX instructions that groups may issue before a launch is given up.
#: Whose alignment rule wmma loads and stores have: the PTX ISA's or the CUDA C++ guide's.
WMMA_RULES = ("ptx", "cuda")
DEFAULT_INSTRUCTIONS = 1 << 32

#: Bytes of shared and local memory that a wave should not exceed.
WAVE_BYTES = 1 << 30

SCHEDULES = ("default", "reverse", "warp-serial", "early-async", "random:SEED")


@dataclass(slots=True)
class Buffer:
    """An argument that is a pointer: its initial bytes (uint8), and which of them are defined."""

    name: str
    data: Array
    readonly: bool = False
    defined: Array | bool = True


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """Everything that a launch needs, and all that the machine is given.

    ``arguments`` are in parameter order: a :class:`Buffer`, or the bytes of a parameter.
    ``wave_ctas`` fixes the number of CTAs that run together; by default it is chosen.
    ``wmma_rule`` says whose alignment rule wmma loads and stores have, ``ptx`` or ``cuda``.
    ``group_type`` is where checks listen: a subclass of :class:`Group` sees every load, store and
    atomic of its lanes, and a launch without one holds no trace of it.
    """

    module: TypedModule
    entry: str
    geometry: Geometry
    arguments: tuple[Buffer | bytes, ...] = ()
    schedule: str = "default"
    max_instructions: int = DEFAULT_INSTRUCTIONS
    wave_ctas: int | None = None
    memory_limit: int = 8 << 30
    wmma_rule: str = "ptx"
    #: follow undefined bits and report them where they matter
    initcheck: bool = True
    count_guards: bool = False
    group_type: type[Group] = Group
    #: what checks listen to, for all waves of the launch
    watch: Watch | None = None
    #: tags of instructions by place of the opcode; with a watch only; None: nothing is counted
    tags: Mapping[tuple[int, int], str] | None = None


@dataclass(slots=True)
class Outcome:
    """What a launch left behind; buffers are in ``buffers`` by argument position."""

    memory: GlobalMemory
    buffers: dict[int, Allocation]
    program: Program
    stopped: bool
    printf: list[str] = field(default_factory=list)
    waves: int = 0

    def contents(self, position: int) -> Array:
        """The bytes of a buffer after the launch."""
        return self.memory.contents(self.buffers[position])

    def undefined(self, position: int) -> int:
        """How many of its bytes were never written, or were discarded."""
        shadow = self.memory.definedness(self.buffers[position])
        return int(np.count_nonzero(shadow == 0))


def _load_variables(
    module: TypedModule, memory: GlobalMemory
) -> tuple[dict[str, int], dict[str, int]]:
    places: dict[str, Allocation] = {}
    for name, symbol in module.variables.items():
        allocation = memory.allocate(
            symbol.size, symbol.name.split("@")[0], align=max(symbol.align, 16),
            readonly=symbol.space == "const", space=symbol.space, defined=not symbol.external,
        )  # fmt: skip
        places[name] = allocation
        if symbol.data is not None:
            memory.contents(allocation)[: len(symbol.data)] = np.frombuffer(symbol.data, np.uint8)
    variables = {name: memory.address(a) for name, a in places.items()}
    functions = {name: CODE_BASE + 16 * n for n, name in enumerate(module.functions, 1)}
    for alias, target in module.aliases.items():
        functions[alias] = functions.get(target, 0)
    for name, symbol in module.variables.items():
        for r in symbol.relocations:
            address = variables[r.symbol] if r.symbol in variables else functions[r.symbol]
            value = ((address + r.addend) >> r.shift) & ((1 << (8 * r.size)) - 1)
            at = places[name].start + r.offset
            memory.bytes[at : at + r.size] = np.frombuffer(
                value.to_bytes(r.size, "little"), np.uint8
            )
    return variables, functions


def _load_arguments(
    record: LaunchRecord, memory: GlobalMemory
) -> tuple[dict[int, Allocation], int]:
    function = record.module.functions[record.entry]
    block = bytearray(max(function.parameter_size, 1))
    buffers: dict[int, Allocation] = {}
    known: dict[tuple[int, int], Allocation] = {}
    for position, argument in enumerate(record.arguments):
        parameter = function.parameters[position]
        assert isinstance(parameter, Symbol)
        if isinstance(argument, Buffer):
            # one array passed twice is one buffer
            where = argument.data.ctypes.data, argument.data.size
            allocation = known.get(where)
            if allocation is None:
                allocation = memory.allocate(
                    argument.data.size, argument.name, readonly=argument.readonly
                )
                known[where] = allocation
                memory.contents(allocation)[:] = argument.data
                if argument.defined is not True:
                    shadow = np.where(argument.defined, np.uint8(0xFF), np.uint8(0))
                    memory.definedness(allocation)[:] = shadow
                    allocation.maybe_undefined = bool((shadow == 0).any())
            buffers[position] = allocation
            data = memory.address(allocation).to_bytes(8, "little")[: parameter.size]
        else:
            data = argument
        block[parameter.offset : parameter.offset + len(data)] = data
    allocation = memory.allocate(len(block), "kernel parameters", readonly=True, space="param")
    memory.contents(allocation)[:] = np.frombuffer(bytes(block), np.uint8)
    return buffers, memory.address(allocation)


def _keep_memory() -> None:
    """Make the C library keep freed blocks of a few hundred KB for the next operation.

    glibc maps large blocks anew each time until one that large was freed once; its limit follows
    the largest freed block up to 32 MB.  Measured: fused multiply-add of 16 Ki lanes 149 us before,
    43 us after.
    """
    np.empty(1 << 24, np.uint8)


def run(record: LaunchRecord, sink: FindingSink) -> Outcome:
    """Run a launch; findings go to ``sink`` in program time."""
    _keep_memory()
    module = record.module
    base = 0x7000_0000_0000 if module.address_size == 64 else 0x1000_0000
    memory = GlobalMemory(base, record.memory_limit)
    variables, functions = _load_variables(module, memory)
    buffers, parameters = _load_arguments(record, memory)
    shared = module.shared_layout(record.entry)
    link = Link(
        variables, functions, parameters, shared, module.target, record.wmma_rule,
        watched=record.watch is not None, initcheck=record.initcheck, tags=record.tags,
        counts_guards=record.count_guards,
    )  # fmt: skip
    program = compile_program(module, record.entry, link)
    outcome = Outcome(memory, buffers, program, False)
    limits = Limits(record.max_instructions)
    clock = _Clock(limits)
    heap = Heap()
    geometry = record.geometry
    with np.errstate(all="ignore"):
        try:
            for ctas in _waves(record):
                early = record.schedule == "early-async"
                services: dict[str, Any] = {
                    "clock": clock, "heap": heap, "printf": outcome.printf,
                    "async_copies": AsyncCopies(early), "bulk_copies": BulkCopies(early),
                    "mbarriers": Mbarriers(), "stacks": Stacks(),
                    "shared_unit": _shared_unit(module.target),
                }  # fmt: skip
                wave = Wave(
                    program, geometry, ctas, memory, sink, services,
                    reverse=record.schedule == "reverse", watch=record.watch,
                )  # fmt: skip
                _run_wave(wave, record, limits)
                outcome.waves += 1
        except Stop:
            outcome.stopped = True
    if record.watch is not None:
        record.watch.launch_ended()
    return outcome


def _run_wave(wave: Wave, record: LaunchRecord, limits: Limits) -> None:
    shuffle = None
    partitions: list[Array] | None = None
    warps = wave.all_lanes >> 5
    if record.schedule == "warp-serial":
        partitions = [wave.all_lanes[warps == w] for w in np.unique(warps)]
    elif record.schedule.startswith("random:"):
        seed = int(record.schedule.partition(":")[2])
        shuffle = random.Random(seed)
        which = np.array([shuffle.randrange(4) for _ in range(int(warps[-1]) + 1)])
        parts = [wave.all_lanes[which[warps] == p] for p in range(4)]
        partitions = [p for p in parts if len(p)]
    scheduler = Scheduler(wave, limits, record.group_type, shuffle)
    if wave.watch is not None:
        wave.watch.wave_began(wave)
    try:
        scheduler.run(scheduler.start(partitions))
        for name in ("async_copies", "bulk_copies", "mbarriers"):
            wave.service(name).finish(wave)
    finally:
        if wave.watch is not None:
            wave.watch.wave_ended(wave)
        wave.give_up_local()


def _waves(record: LaunchRecord) -> list[Array]:
    """CTA indices wave by wave; CTAs of a cluster stay together."""
    g = record.geometry
    frame = record.module.functions[record.entry].frame_size
    shared = record.module.shared_layout(record.entry).size(g.dynamic_shared)
    per_cta = g.warps * 32 * frame + shared
    fit = min(WAVE_LANES // (g.warps * 32), WAVE_BYTES // max(per_cta, 1))
    if _allocates(record.module):  # nobody knows how much
        fit = min(fit, WAVE_BYTES // LOCAL_LIMIT // (g.warps * 32))
    count = record.wave_ctas or max(1, fit)
    order = np.arange(g.ctas, dtype=np.int64)
    size = g.cluster[0] * g.cluster[1] * g.cluster[2]
    if size > 1:
        order = order[np.argsort(_cluster_of(g, order), kind="stable")]
        count = -(-count // size) * size
    waves = [order[at : at + count] for at in range(0, len(order), count)]
    return waves[::-1] if record.schedule == "reverse" else waves


def _allocates(module: TypedModule) -> bool:
    functions = module.functions.values()
    return any(i.record.name == "alloca" for f in functions for i in f.instructions or ())


def _cluster_of(g: Geometry, ctas: Array) -> Array:
    x, y, z = g.ctaid(ctas)
    a, b, c = (i // s for i, s in zip((x, y, z), g.cluster, strict=True))
    wide, high = g.grid[0] // g.cluster[0], g.grid[1] // g.cluster[1]
    cluster: Array = a + wide * (b + high * c)
    return cluster


def _shared_unit(target: Target) -> int:
    """In what shared memory is allocated (PTX ISA 9.1, Special Registers: %total_smem_size)."""
    return 256 if 30 <= target.number < 80 else 128


class _Clock:
    """%clock: instructions issued so far, at least one more at each reading."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._start = limits.left
        self._extra = 0

    def __call__(self) -> int:
        self._extra += 1
        return self._start - self._limits.left + self._extra

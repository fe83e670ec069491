"""Kernels of the instructions that compute: forms from the records, operands from edge values.

Each thread runs every instruction of its kernel once, on operands of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ptxsim
import ptxsim.isa
from ptxsim.agreement import Shape
from ptxsim.isa.record import Form, Instruction, Mods, Pure, registry
from ptxsim.targets import Floor
from tests.device.jobs import Job, job_of
from tests.isa.form_samples import sample_words

__all__ = ["Sample", "instruction_jobs", "instruction_names", "samples"]

THREADS = 256
_PER_KERNEL = 16
#: Destinations whose types may have a tolerance have buffers of their own; all others share one.
_BUFFERS = ("f16", "bf16", "f32", "f64", "b64")
_EDGES: dict[str, list[int]] = {
    "int": [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF,
            0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFF, 1 << 63,
            (1 << 64) - 1, 0x55555555AAAAAAAA, 0x0123456789ABCDEF],
    "f16": [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x4200, 0x7BFF, 0xFBFF, 0x7C00,
            0xFC00, 0x7E00, 0xFE01, 0x7C01],
    "bf16": [0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x3F80, 0xBF80, 0x4040, 0x7F7F, 0xFF7F, 0x7F80,
             0xFF80, 0x7FC0, 0xFFC1, 0x7F81],
    "f32": [0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x40400000,
            0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001,
            0x4B000000, 0x4F000000, 0xCF000000, 0x5F000000, 0x3F000000, 0x3FC00000, 0x7E800001],
    "f64": [0, 1 << 63, 1, (1 << 63) + 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF << 52, 0xBFF << 52,
            0x4008 << 48, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52,
            0x7FF8 << 48, 0xFFF8000000000001, 0x7FF0000000000001, 0x41E0 << 48, 0x43E0 << 48],
}  # fmt: skip


#: Instructions whose operands are addresses.
_ADDRESSES = ("cvta", "isspacep", "mapa", "getctarank")
#: What the assembler of CUDA 13 refuses, though the ISA's tables seem to allow it.
_REFUSED = re.compile(
    r"set\..*\b(f16\.bf16|bf16\.f16)$|cvt\.(?=.*bf16).*\b[us]8$|cvt\..*\be2m1x2\b"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """An instruction: its statements with ``{pool}`` and ``{slot}`` open, and what it needs."""

    name: str
    body: str
    target: str
    version: tuple[int, int]
    outputs: tuple[str, ...]


def pool(kind: str) -> NDArray[np.uint64]:
    """256 operands of 16 bytes: edge values in turn with numbers drawn at random."""
    rng = np.random.default_rng(sum(kind.encode()))
    words = rng.integers(0, 1 << 64, (THREADS, 2), np.uint64)
    edges = _EDGES[kind]
    width = {"f16": 16, "bf16": 16, "f32": 32}.get(kind, 64)
    values = [edges[n // 2 * 7 % len(edges)] for n in range(THREADS)]
    repeated = [sum(v << at for at in range(0, 64, width)) for v in values]
    if width < 64:  # the halves of a packed operand are not all alike
        other = [edges[(n * 5 + 3) % len(edges)] for n in range(THREADS)]
        repeated = [(r & ~(((1 << width) - 1) << width)) | o << width
                    for r, o in zip(repeated, other, strict=True)]  # fmt: skip
    words[::2] = np.array(repeated, np.uint64)[::2, None]
    if kind in ("f32", "f64"):  # most floats at random are huge or tiny: some are near 1
        plain = rng.standard_normal(THREADS)
        near = plain.view(np.uint64) if kind == "f64" else (
            plain.astype(np.float32).view(np.uint32).astype(np.uint64))  # fmt: skip
        words[1::4] = near[1::4, None]
    return words


def _pool_kind(type_: str) -> str:
    for kind in ("bf16", "f16", "f32", "f64"):
        if type_ in (kind, f"{kind}x2"):
            return kind
    return "f32" if type_ == "tf32" else "int"


def _floor(record: Instruction, form: Form, m: Mods) -> tuple[str, tuple[int, int]]:
    """The lowest target and PTX version that are enough."""
    floors: list[Floor] = [record.floor, *(f for _, f in form.floors(m))]
    combined = record.combined_floor(m)
    if combined is not None:
        floors.append(combined[1])
    numbers = max([75, *(f.sm for f in floors)])
    only = [word for f in floors for word in f.only[:1] if not f.sm]
    return f"sm_{only[0]}" if only else f"sm_{numbers}", max([(8, 0), *(f.version for f in floors)])


def _statements(record: Instruction, form: Form, words: tuple[str, ...], m: Mods) -> Sample | None:
    """The instruction with loads of its operands and stores of its results, in a scope."""
    target, version = _floor(record, form, m)
    declared, before, after, operands, outputs = [], [], [], [], []
    number = 0
    for spec in form.operands:
        if spec.hidden or (spec.needs and not m[spec.needs]) or spec.optional:
            continue
        if spec.kind != "value" or spec.constant or spec.selector:
            return None
        type_ = record.type_of(spec.type, m)
        names = []
        for _ in range(record.count_of(spec.count, m) or 1):
            name, bits = f"%x{number}", max(type_.bits, 16)
            number += 1
            names.append(name)
            declared.append(f".reg .{'pred' if type_.kind == 'p' else f'b{bits}'} {name};")
            kind = _pool_kind(type_.name)
            if spec.read and type_.kind == "p":
                before.append(f"ld.global.b32 %w, [%pool_int+{16 * number}]; and.b32 %w, %w, 1;"
                              f" setp.ne.b32 {name}, %w, 0;")  # fmt: skip
            elif spec.read and bits < 128:
                before.append(f"ld.global.b{bits} {name}, [%pool_{kind}+{16 * 37 * number}];")
            elif spec.read:
                return None
            if spec.written and bits < 128:
                exact = type_.kind == "p" or kind == "int" or type_.name == "tf32"
                buffer = "b64" if exact else kind
                outputs.append(buffer)
                width = 32 if type_.kind == "p" else bits
                if type_.kind == "p":
                    after.append(f"selp.b32 %w, 1, 0, {name};")
                value = "%w" if type_.kind == "p" else name
                after.append(f"st.global.b{width} [%out_{buffer}+{{slot{len(outputs) - 1}}}],"
                             f" {value};")  # fmt: skip
        if spec.pair:
            declared.append(".reg .pred %pair;")
            names[0] += "|%pair"
        grouped = record.count_of(spec.count, m) > 0
        operands.append("{{" + ", ".join(names) + "}}" if grouped else names[0])
    opcode = ".".join((record.name, *words))
    line = f"{opcode} {', '.join(operands)};"
    body = " ".join(["{{", *declared, *before, line, *after, "}}"])
    return Sample(opcode, body, target, version, tuple(outputs)) if outputs else None


def _kernel(group: list[Sample]) -> ptxsim.Kernel:
    """One kernel for samples of the same target."""
    sizes = dict.fromkeys(_BUFFERS, 0)
    bodies = []
    for sample in group:
        slots = {}
        for n, buffer in enumerate(sample.outputs):
            slots[f"slot{n}"] = 8 * THREADS * sizes[buffer]
            sizes[buffer] += 1
        bodies.append(sample.body.format(**slots))
    major, minor = max(s.version for s in group)
    params = [f".param .u64 pool_{k}" for k in _EDGES] + [f".param .u64 out_{b}" for b in _BUFFERS]
    pointers = [f"pool_{k}" for k in _EDGES] + [f"out_{b}" for b in _BUFFERS]
    declared = " ".join(f".reg .b64 %{p};" for p in pointers)
    loads = "\n".join(
        f"ld.param.u64 %{p}, [{p}]; mad.wide.u32 %{p}, %t, {16 if p.startswith('pool') else 8},"
        f" %{p};" for p in pointers
    )  # fmt: skip
    text = (
        f".version {major}.{minor}\n.target {group[0].target}\n.address_size 64\n"
        f".visible .entry k({', '.join(params)})\n{{\n.reg .b32 %t, %w; {declared}\n"
        f"mov.u32 %t, %tid.x;\n{loads}\n" + "\n".join(bodies) + "\nret;\n}\n"
    )
    return ptxsim.assemble(text).kernel()


def _records() -> Iterator[Instruction]:
    found = registry.records()
    return (r for r in found if isinstance(r, Pure) and r.name not in _ADDRESSES)


def instruction_names() -> list[str]:
    """The names of the instructions that compute."""
    return sorted({record.name for record in _records()})


def samples(tries: int = 6, names: frozenset[str] | None = None) -> Iterator[Sample]:
    """Instructions that ptxsim assembles, each opcode once."""
    seen = set()
    for record in _records():
        if names is not None and record.name not in names:
            continue
        for form in record.forms:
            if form.unsupported:
                continue
            for words, m in sample_words(record, form, random.Random(record.name), tries):
                sample = _statements(record, form, words, m)
                if sample is None or sample.name in seen or _REFUSED.search(sample.name):
                    continue
                try:
                    _kernel([sample])
                except ptxsim.PtxError:  # operands that this form does not take: constants, ranges
                    continue
                seen.add(sample.name)
                yield sample


def instruction_jobs(tries: int = 6, names: frozenset[str] | None = None) -> Iterator[Job]:
    """Kernels of up to 16 instructions of one target and version."""
    by_target: dict[tuple[str, tuple[int, int]], list[Sample]] = {}
    for sample in samples(tries, names):
        by_target.setdefault((sample.target, sample.version), []).append(sample)
    for (target, version), found in sorted(by_target.items()):
        for at in range(0, len(found), _PER_KERNEL):
            group = found[at : at + _PER_KERNEL]
            # operands are read up to 7 times 37 entries behind the thread's own
            pools = [np.concatenate([pool(k)] * 3).reshape(-1) for k in _EDGES]
            counts = {b: max(1, sum(s.outputs.count(b) for s in group)) for b in _BUFFERS}
            outs = [
                np.zeros(THREADS * counts[b] * 8 // size, dtype)
                for b, size, dtype in (("f16", 2, "f2"), ("bf16", 2, "u2"), ("f32", 4, "f4"),
                                       ("f64", 8, "f8"), ("b64", 8, "u8"))
            ]  # fmt: skip
            name = f"{target}-{version[0]}.{version[1]}-{at // _PER_KERNEL:03}"
            shape = Shape((1, 1, 1), (THREADS, 1, 1))
            types = [None] * len(pools) + list(_BUFFERS)
            yield job_of("instructions", name, _kernel(group), [*pools, *outs], shape, types=types)

"""Sweeps: an approximate instruction on all 2^23 mantissas of an exponent, kept as differences.

What is kept are the distances between a machine's bits and the simulator's.  The hash of the
simulator's bits is kept too: if they change, the distances say nothing any more and are refused.
"""

from __future__ import annotations

import base64
import binascii
import lzma
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim
from ptxsim.agreement import Backend, Shape, simulator
from ptxsim.agreement.recording import Device, device_of, digest

__all__ = [
    "ALL_MANTISSAS",
    "SWEEPS",
    "Answer",
    "Sweep",
    "answer_from_json",
    "answer_to_json",
    "ask",
    "compare",
]

Words = NDArray[np.uint32]
ALL_MANTISSAS = 1 << 23


@dataclass(frozen=True, slots=True)
class Sweep:
    """The numbers with one sign and exponent, and an instruction of one f32 operand."""

    opcode: str
    exponent: int
    target: str = "sm_75"

    @property
    def name(self) -> str:
        """Unique among sweeps."""
        return f"{self.opcode}-{self.exponent}"


#: rcp and the roots look alike for exponents of the same parity, lg2 and sin change near 1; at 0
#: the operands are subnormal.
SWEEPS = tuple(
    Sweep(opcode, exponent)
    for opcode, exponents in (
        ("rcp.approx.f32", (127, 0)),
        ("rsqrt.approx.f32", (127, 128)),
        ("sqrt.approx.f32", (127, 128)),
        ("lg2.approx.f32", (126, 127)),
        ("ex2.approx.f32", (122, 126)),
        ("sin.approx.f32", (124, 127)),
        ("cos.approx.f32", (124, 127)),
        ("tanh.approx.f32", (124, 126)),
    )
    for exponent in exponents
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A machine's results as distances from ours; ``count`` mantissas from 0 on."""

    sweep: Sweep
    count: int
    base_sha256: str
    distances: NDArray[np.int32]
    device: Device
    date: str


def results(sweep: Sweep, count: int, backend: Backend) -> tuple[Words, ptxsim.Report]:
    """The bits of a machine."""
    text = (
        f".version 7.0\n.target {sweep.target}\n.address_size 64\n"
        ".visible .entry k(.param .u64 out)\n{\n.reg .b32 %i, %c, %n; .reg .f32 %f; .reg .b64 %o;\n"
        "mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %i, %tid.x;\n"
        "mad.lo.u32 %i, %c, %n, %i;\nld.param.u64 %o, [out]; mad.wide.u32 %o, %i, 4, %o;\n"
        f"or.b32 %i, %i, {sweep.exponent << 23}; mov.b32 %f, %i;\n{sweep.opcode} %f, %f;\n"
        "st.global.f32 [%o], %f;\nret;\n}\n"
    )
    out = np.zeros(count, np.float32)
    block = min(count, 256)
    shape = Shape((count // block, 1, 1), (block, 1, 1), options={"tools": "none"})
    report = backend(ptxsim.assemble(text).kernel(), [out], shape)
    if not report.clean:
        raise ptxsim.UsageError(f"{report.verdict}: {report.findings[0].message}")
    return out.view(np.uint32), report


def ask(sweep: Sweep, backend: Backend, date: str, count: int = ALL_MANTISSAS) -> Answer:
    """The answer of a machine."""
    base, _ = results(sweep, count, simulator)
    bits, report = results(sweep, count, backend)
    distances = (bits - base).view(np.int32)
    return Answer(sweep, count, digest(base.tobytes()), distances, device_of(report), date)


def compare(answer: Answer) -> int:
    """How many results are further from ours than the tolerance of the instruction allows."""
    from ptxsim.agreement.taint import approximate_sources
    from ptxsim.agreement.values import close

    base, _ = results(answer.sweep, answer.count, simulator)
    if digest(base.tobytes()) != answer.base_sha256:
        raise ptxsim.UsageError(
            f"{answer.sweep.name}: the simulator's results are not those of the recording any more;"
            " record the sweep anew"
        )
    text = (
        f".version 7.0\n.target {answer.sweep.target}\n.address_size 64\n.visible .entry k()\n"
        f"{{ .reg .f32 %f; mov.f32 %f, 0f00000000; {answer.sweep.opcode} %f, %f; ret; }}"
    )
    sources = approximate_sources(ptxsim.assemble(text).typed, "k")
    bits = base + answer.distances.view(np.uint32)
    return int(np.count_nonzero(~close(base, bits, "f32", sources, False)))


def answer_to_json(a: Answer) -> dict[str, Any]:
    """An object of JSON; distances of one byte where they fit."""
    small = bool((np.abs(a.distances.astype(np.int64)) < 128).all())
    data = a.distances.astype(np.int8 if small else np.int32).tobytes()
    return {
        "ptxsim_sweep": 1, "opcode": a.sweep.opcode, "exponent": a.sweep.exponent,
        "target": a.sweep.target, "count": a.count, "base_sha256": a.base_sha256,
        "width": 1 if small else 4, "distances": base64.b64encode(lzma.compress(data)).decode(),
        "device": {"name": a.device.name, "driver": a.device.driver,
                   "compute_capability": list(a.device.compute_capability)},
        "date": a.date,
    }  # fmt: skip


def answer_from_json(tree: Any, where: str) -> Answer:
    """The answer in an object of JSON; :class:`UsageError` for anything else."""
    known = {s.name: s for s in SWEEPS}
    try:
        sweep = known[f"{tree['opcode']}-{tree['exponent']}"]
        count, width = tree["count"], tree["width"]
        if tree["ptxsim_sweep"] != 1 or width not in (1, 4) or not 1 <= count <= ALL_MANTISSAS:
            raise ValueError("fields out of range")
        unpack = lzma.LZMADecompressor(memlimit=256 << 20)
        data = unpack.decompress(base64.b64decode(tree["distances"], validate=True),
                                 count * width + 1)  # fmt: skip
        if len(data) != count * width:
            raise ValueError("another number of distances")
        distances = np.frombuffer(data, f"i{width}").astype(np.int32)
        told = tree["device"]
        capability = tuple(int(n) for n in told["compute_capability"])
        device = Device(str(told["name"]), capability, str(told["driver"]))
        return Answer(sweep, count, str(tree["base_sha256"]), distances, device, str(tree["date"]))
    except (KeyError, TypeError, ValueError, binascii.Error, lzma.LZMAError) as error:
        raise ptxsim.UsageError(f"{where}: no sweep: {error!r}") from None

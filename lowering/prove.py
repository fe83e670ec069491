"""Proof that an emitted copy is right: it is run in the simulator with every byte its own tag.

The addresses of a copy do not depend on what is copied.  So one run in which no two bytes are alike
proves it for all data.  A byte has 256 values; a tile of more bytes runs once for each byte of its
numbers.  The registers and shared memory of the probe are filled and read out without any layout,
so that no mistake of the copy can be made again by its proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim
from ptxsim.build import Address, Kernel, Register, Special

from .copy.fit import byte_map
from .copy.kernel import new_kernel, tile_base
from .copy.memory import MemoryPlan
from .copy.plan import Move, Plan, wavefronts
from .dispatch import Decline

__all__ = ["Proof", "ProofError", "prove_copy", "prove_kernel", "prove_memory_copy"]

Bytes = NDArray[np.uint8]


class ProofError(AssertionError):
    """An emitted copy does not do what its layouts say: a bug of the lowering."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the runs of a proof showed.

    ``ways`` has, for each memory instruction, its wavefronts in shared memory and how few are
    possible, from the addresses that the run computed.
    """

    runs: int
    bytes: int
    ways: tuple[tuple[int, int], ...]


def prove_copy(plan: Plan) -> Proof:
    """Run a plan with tags; :class:`ProofError` with thread, register and address of a mismatch."""
    kernel, moves = _probe(plan)
    run = _runner(kernel, plan.copy.thread_count, f"the probe of {plan.variant}")
    copy, placement = plan.copy, plan.placement
    words, total = placement.words, copy.thread_count
    expected = byte_map(copy, placement).reshape(total, words * 4)
    inside, outside = placement.shared_bytes, total * words * 4
    read = inside if copy.direction == "ld" else outside
    rounds = _tags(max(inside, outside))
    ways: tuple[tuple[int, int], ...] = ()
    for tags in rounds:
        memory, registers = tags[:inside].copy(), tags[:outside].copy()
        if copy.direction == "ld":
            registers[:] = 0x5A ^ tags[np.where(expected >= 0, expected, 0)].reshape(-1)
        else:
            memory[:] = 0xA5 ^ tags[:inside]
        untouched = memory.copy()
        addresses = np.zeros((moves, total), np.uint32)
        run(memory, registers, addresses)
        if copy.direction == "ld":
            _check_load(plan, expected, registers.reshape(total, -1), tags)
        else:
            _check_store(plan, expected, memory, tags, untouched)
        if copy.space == "shared":
            ways = _ways(plan, addresses)
    return Proof(len(rounds), read, ways)


def prove_kernel(plan: Plan, kernel: Kernel) -> None:
    """Run a whole kernel of a copy with tags: ``dst`` must equal ``src``."""
    copy = plan.copy
    run = _runner(kernel, copy.thread_count, f"the kernel of {plan.variant}")
    for src in _tags(copy.register.size() * copy.width):
        dst = src ^ np.uint8(0xA5)
        tile = [np.zeros(plan.placement.shared_bytes, np.uint8)] * (copy.space == "global")
        run(*tile, src, dst)
        wrong = np.flatnonzero(src != dst)
        if len(wrong):
            raise ProofError(f"{plan.variant}: byte {int(wrong[0])} of dst is not that of src")


def prove_memory_copy(plan: MemoryPlan) -> Proof:
    """The same for a copy between memories; bytes that no element names must stay as they were."""
    offsets = plan.copy.offsets()
    assert not isinstance(offsets, Decline)
    far, near = ((o[:, None] + np.arange(plan.copy.width)).reshape(-1) for o in offsets)
    sizes = [-(-(int(o.max()) + 1) // 16) * 16 for o in (far, near)]
    kernel = _memory_probe(plan, sizes[1])
    run = _runner(kernel, plan.copy.threads, f"the probe of {plan.variant}")
    loads = plan.copy.direction == "g2s"
    rounds = _tags(max(sizes))
    for tags in rounds:
        flip = np.uint8(0xA5)
        source, target = tags[: sizes[0]].copy(), tags[: sizes[1]] ^ flip
        if not loads:
            source, target = source ^ flip, tags[: sizes[1]].copy()
        want = target.copy() if loads else source.copy()
        if loads:
            want[near] = source[far]
        else:
            want[far] = target[near]
        run(source, target)
        got = target if loads else source
        wrong = np.flatnonzero(got != want)
        if len(wrong):
            at = int(wrong[0])
            raise ProofError(
                f"{plan.variant}: byte {at} has tag {int(got[at])} instead of {int(want[at])}"
            )
    return Proof(len(rounds), len(far), ())


def _tags(size: int) -> list[Bytes]:
    """Bytes for as many runs as it takes to tell ``size`` places apart, the low ones first."""
    runs = max(1, -(-(size - 1).bit_length() // 8))
    return [(np.arange(size) >> (8 * run)).astype(np.uint8) for run in range(runs)]


def _runner(kernel: Kernel, threads: int, what: str) -> Callable[..., None]:
    """A function that launches a kernel as one CTA; an error finding is a failed proof."""
    entry = kernel.assemble().kernel()

    def run(*arguments: Any) -> None:
        report = entry.launch(grid=1, block=threads, args=arguments, smem=kernel.dynamic_shared)
        errors = [f for f in report.findings if f.severity is ptxsim.Severity.ERROR]
        if errors:
            raise ProofError(f"{what} reports {errors[0].message}")

    return run


def _memory_probe(plan: MemoryPlan, size: int) -> Kernel:
    """A kernel that fills shared memory linearly, copies, and reads it out linearly."""
    k = Kernel("probe", target=plan.copy.target)
    tile = k.shared("tile", size, plan.copy.align)
    far, near = k.parameter("far", "u64"), k.parameter("near", "u64")
    thread = k.new("mov.u32", "b32", Special("%tid.x"))
    base = k.new("mov.u32", "b32", tile)
    pointers = [k.new("ld.param.u64", "b64", Address(p)) for p in (far, near)]
    _linear(k, plan.copy.threads, size, base, pointers[1], fill=True)
    k.emit("bar.sync", 0)
    plan.emit(k, thread, base, pointers[0])
    if plan.variant == "cp_async":
        k.emit("cp.async.wait_all")
    k.emit("bar.sync", 0)
    _linear(k, plan.copy.threads, size, base, pointers[1], fill=False)
    return k


def _probe(plan: Plan) -> tuple[Kernel, int]:
    """A kernel that fills both sides linearly, copies, and reads both sides out linearly.

    A tile in global memory is the buffer itself.
    """
    k, tile = new_kernel(plan, "probe", [])
    shared = plan.copy.space == "shared"
    memory = k.parameter("memory", "u64") if shared else tile
    registers, addresses = k.parameter("registers", "u64"), k.parameter("addresses", "u64")
    total, placement = plan.copy.thread_count, plan.placement
    thread = k.new("mov.u32", "b32", Special("%tid.x"))
    base = tile_base(k, tile)
    pointers = [k.new("ld.param.u64", "b64", Address(p)) for p in (memory, registers, addresses)]
    words = k.registers("b32", placement.words)
    mine = k.new("mad.wide.u32", "b64", thread, 4 * placement.words, pointers[1])
    for number, word in enumerate(words):
        k.emit("ld.global.b32", word, Address(mine, 4 * number))
    if shared:
        _linear(k, total, placement.shared_bytes, base, pointers[0], fill=True)
        k.emit("bar.sync", 0)
    given = plan.emit(k, thread, base, words)
    for number, word in enumerate(words):
        k.emit("st.global.b32", Address(mine, 4 * number), word)
    if shared:
        k.emit("bar.sync", 0)
        _linear(k, total, placement.shared_bytes, base, pointers[0], fill=False)
    for number, address in enumerate(given):
        assert isinstance(address.base, Register)
        if shared:
            relative = k.new("sub.u32", "b32", address.base, base)
        else:
            relative = k.new("cvt.u32.u64", "b32", k.new("sub.u64", "b64", address.base, base))
        k.emit("add.u32", relative, relative, address.offset)
        at = k.new("mad.wide.u32", "b64", thread, 4, pointers[2])
        k.emit("st.global.b32", Address(at, 4 * number * total), relative)
    return k, len(given)


def _linear(
    k: Kernel, total: int, size: int, base: Register, pointer: Register, fill: bool
) -> None:
    """Copy ``size`` bytes of the buffer to shared memory, or back, word by word in a loop."""
    at = k.new("mov.u32", "b32", Special("%tid.x"))
    k.emit("shl.b32", at, at, 2)
    again, done = k.label("fill" if fill else "read"), k.label("done")
    k.place(again)
    outside = k.new("setp.ge.u32", "pred", at, size)
    k.emit("bra", done, guard=outside)
    there = k.new("cvt.u64.u32", "b64", at)
    k.emit("add.u64", there, there, pointer)
    here = k.new("add.u32", "b32", base, at)
    value = k.register("b32")
    if fill:
        k.emit("ld.global.b32", value, Address(there))
        k.emit("st.shared.b32", Address(here), value)
    else:
        k.emit("ld.shared.b32", value, Address(here))
        k.emit("st.global.b32", Address(there), value)
    k.emit("add.u32", at, at, 4 * total)
    k.emit("bra", again)
    k.place(done)


def _check_load(plan: Plan, expected: NDArray[np.int64], got: Bytes, tags: Bytes) -> None:
    used = expected >= 0
    want = tags[np.where(used, expected, 0)]
    wrong = np.argwhere(used & (got != want))
    if len(wrong):
        thread, byte = (int(i) for i in wrong[0])
        raise ProofError(
            f"{plan.variant}: byte {byte % 4} of register word {byte // 4} of thread {thread} has"
            f" tag {int(got[thread, byte])}, shared byte {int(expected[thread, byte])} has"
            f" {int(want[thread, byte])}"
        )


def _check_store(
    plan: Plan, expected: NDArray[np.int64], got: Bytes, tags: Bytes, untouched: Bytes
) -> None:
    want = untouched.copy()
    thread, byte = np.nonzero(expected >= 0)
    want[expected[thread, byte]] = tags[thread * expected.shape[1] + byte]
    wrong = np.flatnonzero(got != want)
    if len(wrong):
        at = int(wrong[0])
        of = np.argwhere(expected == at)
        source = (
            "no register"
            if not len(of)
            else (f"byte {of[0][1] % 4} of register word {of[0][1] // 4} of thread {of[0][0]}")
        )
        raise ProofError(
            f"{plan.variant}: shared byte {at} has tag {int(got[at])} instead of {int(want[at])},"
            f" which {source} has"
        )


def _ways(plan: Plan, addresses: NDArray[np.uint32]) -> tuple[tuple[int, int], ...]:
    out = []
    for move, given in zip(plan.moves, addresses, strict=True):
        table = given.astype(np.int64)
        out.append(wavefronts(Move(move.opcode, move.parts, table, move.row, move.suppliers)))
    return tuple(out)

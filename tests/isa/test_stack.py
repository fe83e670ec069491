"""alloca, stacksave, stackrestore (PTX ISA 9.1, Stack Manipulation Instructions): addresses, what
they hold, how long, and what happens when they are used wrongly."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import ptxsim

SCHEDULES = ("default", "reverse", "warp-serial", "random:1")
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)

_KERNEL = """\
.version 8.0
.target sm_80
.address_size 64
{before}
.visible .entry k(.param .u64 out_p, .param .u64 in_p)
{{
    .reg .pred %p<8>; .reg .b32 %r<32>, %t; .reg .b64 %d<40>, %out, %in, %mine;
    .local .align 8 .b8 frame[24];
    ld.param.u64 %out, [out_p]; ld.param.u64 %in, [in_p];
    mov.u32 %t, %tid.x; mov.u32 %r30, %ctaid.x; mov.u32 %r31, %ntid.x;
    mad.lo.u32 %t, %r30, %r31, %t; mad.wide.u32 %mine, %t, 4, %out; cvt.u64.u32 %d39, %t;
    setp.eq.u32 %p7, %t, 3;
{body}
    ret;
}}
"""

#: What the functions of the tests below do: allocate and leave; use memory of the caller under
#: allocations and a large frame of their own; the sum of n, n - 1, ... 0 by recursion, each level
#: with an allocation of another size; have a large frame; restore the stack pointer that they get.
_FUNCTIONS = """
.func (.param .b64 r) leave(.param .b64 n)
{
    .reg .b64 %n; ld.param.b64 %n, [n];
    alloca.u64 %n, %n; st.param.b64 [r], %n; ret;
}
.func (.param .b32 r) look(.param .b64 p)
{
    .reg .b64 %p, %q; .reg .b32 %v, %w; .local .align 4 .b8 big[4000];
    ld.param.b64 %p, [p]; alloca.u64 %q, 100;
    st.local.u32 [%q+96], 1000; st.local.u32 [big+3996], 7;
    ld.local.u32 %v, [%p]; ld.local.u32 %w, [%q+96]; add.u32 %v, %v, %w;
    st.param.b32 [r], %v; ret;
}
.func (.param .b32 r) sum(.param .b32 n)
{
    .reg .b32 %n, %v; .reg .b64 %a, %s; .reg .pred %p;
    ld.param.b32 %n, [n]; mad.wide.u32 %s, %n, 3, 4; mov.u32 %v, 0;
    alloca.u64 %a, %s, 32; st.local.u32 [%a], %n;
    setp.eq.u32 %p, %n, 0; @%p bra E; sub.u32 %n, %n, 1;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %n; call (y), sum, (x);
      ld.param.b32 %v, [y]; }
E:  ld.local.u32 %n, [%a]; add.u32 %v, %v, %n; st.param.b32 [r], %v; ret;
}
.func wide()
{
    .local .align 4 .b8 big[4000]; st.local.u32 [big+3996], 7; ret;
}
.func restore(.param .b64 p)
{
    .reg .b64 %p; ld.param.b64 %p, [p]; stackrestore.u64 %p; ret;
}
"""


def _call(name: str, argument: str, result: str = "", bits: int = 64) -> str:
    """A call with an argument, and a result of 32 or (of ``leave``) 64 bits."""
    out = "64" if name == "leave" else "32"
    back = f" ld.param.b{out} {result}, [y];" if result else ""
    results = "(y), " if result else ""
    return (
        f"{{ .param .b{bits} x; .param .b{out} y; st.param.b{bits} [x], {argument};"
        f" call {results}{name}, (x);{back} }}"
    )


def _run(
    body: str, *, block: int = 32, grid: int = 1, out: Any = None, data: Any = None, **options: Any
) -> tuple[ptxsim.Report, Any]:
    out = np.zeros(block * grid, np.uint32) if out is None else out
    data = np.zeros(1, np.uint32) if data is None else data
    text = _KERNEL.format(before=_FUNCTIONS, body=body)
    kernel = ptxsim.assemble(text).kernel()
    return kernel.launch(grid=grid, block=block, args=[out, data], **options), out


def _found(body: str, **options: Any) -> tuple[str, str, tuple[int, ...]]:
    report, _ = _run(body, **options)
    (one,) = report.findings
    return one.class_, one.message, one.lanes


# --- what it gives --------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("align", [None, 1, 8, 16, 256, 65536])
def test_alignment(width: int, align: int | None) -> None:
    """The default, and the least, is 8; the size differs from thread to thread."""
    size, register = ("%t", "%r1") if width == 32 else ("%d39", "%d1")
    tail = "" if align is None else f", {align}"
    body = f"alloca.u{width} {register}, {size}{tail};"
    body += "st.global.u32 [%mine], %r1;" if width == 32 else "st.global.u32 [%mine], %d1;"
    body = body.replace("u32 [%mine], %d1", "u64 [%mine], %d1").replace("u64 [%mine]", "u64 [%d2]")
    body = f"mad.wide.u32 %d2, %t, 8, %out; {body}"
    out = np.zeros(64, np.uint32)
    report, out = _run(body, out=out)
    assert report.clean, report.findings
    addresses = out[:32] if width == 32 else out.view(np.uint64)[:32]
    assert not (addresses % max(align or 8, 8)).any()
    assert (addresses + np.arange(32) < 1 << 24).all() and (
        addresses >= (1 << 24) - (1 << 19)
    ).all()


@each_schedule
def test_local_and_generic_addresses(schedule: str) -> None:
    """The address is local; cvta makes a generic one of it."""
    body = """
    alloca.u64 %d1, 16; cvta.local.u64 %d2, %d1; isspacep.local %p1, %d2;
    st.local.u32 [%d1+4], %t; ld.u32 %r1, [%d2+4]; @%p1 add.u32 %r1, %r1, 100;
    atom.add.u32 %r2, [%d2+4], 1; ld.local.u32 %r3, [%d1+4]; mad.lo.u32 %r1, %r3, 1000, %r1;
    st.global.u32 [%mine], %r1;"""
    report, out = _run(body, block=64, grid=3, schedule=schedule)
    assert report.clean, report.findings
    thread = np.arange(192)
    assert (out == 1000 * (thread + 1) + thread + 100).all()


@each_schedule
def test_frames_and_stack_grow_together(schedule: str) -> None:
    """Recursion with an allocation at each level; frames and stacks move, what they hold stays."""
    body = _call("sum", "%t", "%r1", 32) + "st.global.u32 [%mine], %r1;"
    report, out = _run(body, block=64, grid=2, schedule=schedule)
    assert report.clean, report.findings
    thread = np.arange(128)
    assert (out == thread * (thread + 1) // 2).all()


def test_memory_of_the_caller() -> None:
    """A function reads what its caller allocated, under allocations and a frame of its own."""
    body = "alloca.u64 %d1, 4; st.local.u32 [%d1], %t; st.local.u32 [frame], %t;"
    body += _call("look", "%d1", "%r1")
    body += "ld.local.u32 %r2, [%d1]; ld.local.u32 %r3, [frame]; mad.lo.u32 %r1, %r2, 10000, %r1;"
    body += "mad.lo.u32 %r1, %r3, 1000000, %r1; st.global.u32 [%mine], %r1;"
    report, out = _run(body)
    assert report.clean, report.findings
    thread = np.arange(32)
    assert (out == thread * 1010001 + 1000).all()


def test_a_restore_makes_room() -> None:
    """A loop that allocates 100 times what a thread may have."""
    body = """
    mov.u32 %r1, 0;
L:  stacksave.u64 %d1; alloca.u64 %d2, 524000; st.local.u32 [%d2+523996], %r1;
    ld.local.u32 %r2, [%d2+523996]; stackrestore.u64 %d1;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra L;
    st.global.u32 [%mine], %r2;"""
    report, out = _run(body, block=4)
    assert report.clean, report.findings
    assert out.tolist() == [99] * 4


def test_what_alloca_gave_is_a_stack_pointer() -> None:
    """The ISA defines it as the stacksave behind the allocation."""
    body = """
    alloca.u64 %d1, 16; stacksave.u64 %d2; alloca.u64 %d3, 16; stackrestore.u64 %d1;
    stacksave.u64 %d4; setp.eq.u64 %p1, %d1, %d2; setp.eq.and.u64 %p1, %d1, %d4, %p1;
    selp.u32 %r1, 1, 0, %p1; st.global.u32 [%mine], %r1;"""
    report, out = _run(body)
    assert report.clean, report.findings
    assert (out == 1).all()


# --- against a model of one thread after the other ------------------------------------------------


class _Program:
    """A random straight line of allocations, saves and restores that only some threads execute.

    ``sizes[i]`` are the sizes of allocation ``i`` by thread, ``lives[i]`` says which threads have
    it at the end; each thread writes a tag to the first and last word of each of its allocations.
    ``masks`` are what guards are read from.
    """

    def __init__(self, seed: int, threads: int, count: int = 8) -> None:
        rng = random.Random(seed)
        self.threads = threads
        self.lines = [f"mov.b64 %d{i}, 0;" for i in range(count)]
        self.masks: list[list[bool]] = []
        self.sizes: list[list[int]] = []
        stacks: list[list[int]] = [[] for _ in range(threads)]
        saves: list[list[list[int] | None]] = [[] for _ in range(threads)]
        for i in range(count):
            if rng.random() < 0.5:
                self._save(saves, stacks)
            self._allocate(rng, i, stacks)
            if saves[0] and rng.random() < 0.6:
                self._restore(rng, saves, stacks)
        self.lives = [[i in stack for stack in stacks] for i in range(count)]
        for i, lives in enumerate(self.lives):
            self._guard(lives)
            self.lines += [
                f"@%p1 ld.local.u32 %r2, [%d{i}]; add.u64 %d30, %d{i}, %d{10 + i};",
                f"@%p1 ld.local.u32 %r3, [%d30+-4]; cvt.u32.u64 %r5, %d{i};",
                f"mov.u64 %d31, {3 * 4 * i * threads}; add.u64 %d31, %d31, %mine;",
                *(f"@%p1 st.global.u32 [%d31+{4 * k * threads}], %r{r};"
                  for k, r in enumerate((2, 3, 5))),
            ]  # fmt: skip

    def _guard(self, mask: list[bool]) -> None:
        self.lines.append(
            f"mov.u64 %d32, {4 * len(self.masks) * self.threads}; add.u64 %d32, %d32, %in;"
            "mad.wide.u32 %d32, %t, 4, %d32; ld.global.u32 %r1, [%d32]; setp.ne.u32 %p1, %r1, 0;"
        )
        self.masks.append(mask)

    def _save(self, saves: list[list[list[int] | None]], stacks: list[list[int]]) -> None:
        self.lines.append(f"stacksave.u64 %d{20 + len(saves[0])};")
        for save, stack in zip(saves, stacks, strict=True):
            save.append(list(stack))

    def _allocate(self, rng: random.Random, i: int, stacks: list[list[int]]) -> None:
        takes = [rng.random() < 0.7 for _ in stacks]
        factor, align = rng.choice((0, 4, 12, 100)), rng.choice((8, 16, 128))
        self.sizes.append([4 + factor * t for t in range(self.threads)])
        self._guard(takes)
        self.lines += [
            f"mad.wide.u32 %d{10 + i}, %t, {factor}, 4;",
            f"@%p1 alloca.u64 %d{i}, %d{10 + i}, {align}; mad.lo.u32 %r4, %t, 100, {i};",
            f"@%p1 st.local.u32 [%d{i}], %r4; add.u64 %d30, %d{i}, %d{10 + i};",
            "@%p1 st.local.u32 [%d30+-4], %r4;",
        ]
        for stack, take in zip(stacks, takes, strict=True):
            if take:
                stack.append(i)

    def _restore(
        self, rng: random.Random, saves: list[list[list[int] | None]], stacks: list[list[int]]
    ) -> None:
        which = rng.randrange(len(saves[0]))
        chosen = [save[which] is not None and rng.random() < 0.6 for save in saves]
        self._guard(chosen)
        self.lines.append(f"@%p1 stackrestore.u64 %d{20 + which};")
        for thread, restores in enumerate(chosen):
            kept = saves[thread][which]
            if restores and kept is not None:
                stacks[thread][len(kept) :] = []
                for k, save in enumerate(saves[thread]):
                    if save is not None and len(save) > len(kept):
                        saves[thread][k] = None


@each_schedule
@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int, schedule: str) -> None:
    """Tags are where they were put, allocations are aligned and apart, in every thread."""
    threads, block = 48, 24
    program = _Program(seed, threads)
    data = np.array(program.masks, np.uint32)
    out = np.zeros((len(program.sizes), 3, threads), np.uint32)
    report, out = _run(
        "".join("    " + line + "\n" for line in program.lines),
        block=block, grid=threads // block, out=out, data=data, schedule=schedule,
    )  # fmt: skip
    assert report.clean, report.findings
    for t in range(threads):
        stretches = []
        for i, lives in enumerate(program.lives):
            if lives[t]:
                first, last, address = out[i, :, t].tolist()
                assert first == last == 100 * t + i
                stretches.append((address, address + program.sizes[i][t]))
        stretches.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(stretches))


# --- definedness and lifetime ---------------------------------------------------------------------

_USE = "ld.local.u32 %r1, [%d1]; st.global.u32 [%mine], %r1;"
_TOP = 1 << 24


def test_memory_is_undefined_at_first() -> None:
    class_, message, lanes = _found(f"alloca.u64 %d1, 16; @!%p7 st.local.u32 [%d1], 1; {_USE}")
    assert (class_, lanes) == ("uninit-local", (3,))
    assert f"local address {_TOP - 32:#x}" in message


def test_memory_is_undefined_when_it_comes_back() -> None:
    body = "stacksave.u64 %d2; alloca.u64 %d1, 16; st.local.u32 [%d1], 1; stackrestore.u64 %d2;"
    assert _found(body + "alloca.u64 %d1, 16;" + _USE)[0] == "uninit-local"


def test_undefined_bits_go_through_it() -> None:
    body = "alloca.u64 %d1, 16; ld.local.u32 %r2, [frame]; st.local.u32 [%d1], %r2;"
    class_, message, _ = _found(body + _USE)
    assert class_ == "uninit-local" and "local address 0x0" in message


def test_a_size_must_be_defined() -> None:
    assert _found("alloca.u32 %r1, %r2;")[0] == "uninit-register"


def test_a_return_frees() -> None:
    body = _call("leave", "16", "%d1") + "st.local.u32 [%d1], 1;"
    class_, message, _ = _found(body)
    assert class_ == "oob-local" and "below the stack pointer" in message


def test_a_return_frees_what_the_function_allocated_and_no_more() -> None:
    body = "alloca.u64 %d1, 16; st.local.u32 [%d1], %t; stacksave.u64 %d2;"
    body += _call("leave", "160", "%d3") + "stacksave.u64 %d4; setp.eq.u64 %p1, %d2, %d4;"
    body += "ld.local.u32 %r1, [%d1]; @%p1 add.u32 %r1, %r1, 1; st.global.u32 [%mine], %r1;"
    report, out = _run(body)
    assert report.clean and out.tolist() == list(range(1, 33))


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("st.local.b8 [%d1+10], %r0;", "just past the end of memory of alloca"),
        ("st.local.b64 [%d1+8], %d39;", "its last 6 bytes past the end of memory of alloca"),
        ("st.local.b32 [%d1+20], %t;", "10 bytes past the end of memory of alloca"),
        ("st.local.b32 [%d1+-8], %t;", "below the stack pointer"),
        ("st.b32 [%d2+12], %t;", "2 bytes past the end of memory of alloca"),
        ("st.local.b32 [%d1+1024], %t;", "1014 bytes past the end of memory of alloca"),
    ],
)
def test_accesses_outside(line: str, message: str) -> None:
    """Ten bytes, the first allocation of the thread."""
    body = f"alloca.u64 %d1, 10; cvta.local.u64 %d2, %d1; mov.b32 %r0, 0; @%p7 {line}"
    class_, found, lanes = _found(body)
    assert (class_, lanes) == ("oob-local", (3,))
    assert message in found


def test_the_last_byte_is_inside() -> None:
    body = (
        "alloca.u64 %d1, 10; st.local.b8 [%d1+9], %t; alloca.u64 %d2, 5, 8; st.local.b32 [%d2], 1;"
    )
    assert _run(body + "st.local.b16 [%d1+6], %h0;".replace("%h0", "%r30"))[0].clean


def test_past_the_end_is_not_the_next_allocation() -> None:
    body = "alloca.u64 %d1, 16; alloca.u64 %d2, 16; st.local.u32 [%d2+16], 1;"
    assert _found(body)[1].endswith("just past the end of memory of alloca")


def test_frames_have_their_bounds() -> None:
    body = "alloca.u64 %d1, 16; mov.u64 %d2, frame; st.local.u32 [%d2+32], 1;"
    assert _found(body)[1].endswith("just past the end of the 32 bytes of local memory")


def test_no_bytes() -> None:
    """An allocation of none is no fault, an access to it is."""
    assert _run("alloca.u64 %d1, 0; stackrestore.u64 %d1;")[0].clean
    assert _found("alloca.u64 %d1, 0; ld.local.b8 %r1, [%d1];")[0] == "oob-local"


def test_misaligned() -> None:
    assert _found("alloca.u64 %d1, 16; st.local.u32 [%d1+2], 1;")[0] == "misaligned-local"


# --- limits and misuse ----------------------------------------------------------------------------


def test_the_limit_is_that_of_the_thread() -> None:
    """512 KB less 32 bytes of frame and a gap of 16: exactly so much fits."""
    most = (1 << 19) - 32 - 16
    assert _run(f"alloca.u64 %d1, {most}; st.local.u32 [%d1], 1;", block=1)[0].clean
    class_, message, _ = _found(f"alloca.u64 %d1, {most + 8};", block=1)
    assert class_ == "stack-overflow" and f"of {most + 8} bytes at a multiple of 8" in message


@pytest.mark.parametrize(
    "body",
    [
        "mov.b64 %d1, -1; alloca.u64 %d1, %d1;",
        "mov.b32 %r1, -1; alloca.u32 %r1, %r1;",
        "alloca.u64 %d1, 16, 8388608;",
        "L: alloca.u64 %d1, 1000; bra L;",
    ],
    ids=["u64", "u32", "alignment", "loop"],
)
def test_overflow(body: str) -> None:
    assert _found(body)[0] == "stack-overflow"


def test_frames_count_for_the_limit() -> None:
    """Of a function that is entered later, and allocates nothing; freed memory does not count."""
    body = "stacksave.u64 %d2; alloca.u64 %d1, 522000;"
    class_, message, _ = _found(body + "call wide, ();", block=1)
    assert class_ == "stack-overflow" and "the call stack needs" in message
    assert _run(body + "stackrestore.u64 %d2; call wide, ();", block=1)[0].clean


@pytest.mark.parametrize(
    "body",
    [
        "mov.b64 %d1, 64; {}stackrestore.u64 %d1;",
        "alloca.u64 %d2, 16; add.u64 %d1, %d2, 8; {}stackrestore.u64 %d1;",
        # an older one has freed it
        "stacksave.u64 %d2; alloca.u64 %d1, 16; stackrestore.u64 %d2; {}stackrestore.u64 %d1;",
        "mov.b32 %r1, -1; {}stackrestore.u32 %r1;",
        "mov.b64 %d1, -1; {}stackrestore.u64 %d1;",
    ],
    ids=["number", "inside", "freed", "u32", "u64"],
)
def test_foreign_values(body: str) -> None:
    class_, message, lanes = _found(body.format("@%p7 "))
    assert (class_, lanes) == ("bad-stackrestore", (3,))
    assert "no stack pointer of this call" in message


def test_the_stack_pointer_of_a_caller_is_foreign() -> None:
    """It would free what the caller has; one that frees nothing does no harm."""
    body = "stacksave.u64 %d1; alloca.u64 %d2, 16;" + _call("restore", "%d1")
    assert _found(body)[0] == "bad-stackrestore"
    assert _run("alloca.u64 %d2, 16; stacksave.u64 %d1;" + _call("restore", "%d1"))[0].clean


def test_a_stack_pointer_must_be_defined() -> None:
    """What it holds is foreign as well."""
    report, _ = _run("stackrestore.u64 %d1;")
    assert [f.class_ for f in report.findings] == ["uninit-register", "bad-stackrestore"]


@pytest.mark.parametrize("align", [0, 7, 1 << 24])
def test_illegal_alignments(align: int) -> None:
    """ptxas 13.0: 2^23 is the largest."""
    with pytest.raises(ptxsim.PtxError) as caught:
        _run(f"alloca.u64 %d1, 16, {align};")
    assert "power of two up to 8388608" in caught.value.diagnostics[0].message

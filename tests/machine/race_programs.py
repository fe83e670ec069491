"""Random small PTX programs about order in memory, legal and free of deadlock by construction.

All warps walk the same statements in the same order, so barriers of any number of warps cannot wait
in a circle; a barrier that some warps only arrive at has its own number, and a loop with one ends
with a barrier of all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["KINDS", "Program", "make"]

#: barriers of everyone; parts of a CTA or warp; patterns of release and acquire; cp.async; places
#: with many readers, cp.async among them, where whole warps meet; fence.sc among accesses that
#: acquire nothing; strong accesses of all scopes and sizes to few places; mbarriers at which some
#: lanes arrive and some wait
KINDS = ("whole", "parts", "patterns", "copies", "readers", "fences", "strengths", "phases")

_HEAD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 g_p)
{
.reg .pred %p, %q;
.reg .b16 %h;
.reg .b32 %t, %w, %l, %n, %c, %i, %s, %a, %r, %v, %m, %z;
.reg .b64 %d, %e, %g, %x, %state;
.shared .align 16 .b8 s[2048];
.shared .align 8 .b64 bars[16];
ld.param.u64 %g, [g_p];
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x;
shr.u32 %w, %t, 5; and.b32 %l, %t, 31; mad.lo.u32 %n, %c, %n, %t;
mov.u32 %s, s; mov.u32 %z, 0;
"""


@dataclass(frozen=True, slots=True)
class Program:
    """The text and the launch that it is made for."""

    text: str
    grid: int
    block: int


@dataclass
class _Writer:
    rng: random.Random
    kind: str
    grid: int
    block: int
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    named: int = 0
    #: how many places there are, and how likely order is
    places: int = 4
    order: float = 0.5
    arrives: bool = False
    #: whether each message has words of its own, and the next of them
    apart: bool = False
    next: int = 16
    #: whether strong accesses may acquire and release
    exact: bool = False
    #: how many arrivals each mbarrier expects
    expected: list[int] = field(default_factory=list)

    @property
    def warps(self) -> int:
        return -(-self.block // 32)

    def put(self, *lines: str) -> None:
        self.lines += lines

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    # --- parts of statements --------------------------------------------------------------------

    def who(self) -> str:
        """Set %p to a subset of the threads and return the guard, or an empty one."""
        rng = self.rng
        kind = rng.choice(("one", "one", "some", "lane", "warp", "odd", "below", "cta", "all"))
        actors = {"patterns": 0.8, "phases": 0.5, "readers": 0.6, "parts": 0.2, "strengths": 1.0}
        if self.kind in actors and rng.random() < actors[self.kind]:
            kind = "actor"
        line = {
            "actor": f"setp.eq.u32 %p, %n, {rng.choice(self.actors())};",
            "one": f"setp.eq.u32 %p, %t, {rng.randrange(self.block)};",
            "some": f"and.b32 %i, %t, {rng.choice((3, 7, 33, 17))}; setp.eq.u32 %p, %i, 1;",
            "lane": f"setp.eq.u32 %p, %l, {rng.randrange(4)};",
            "warp": f"setp.eq.u32 %p, %w, {rng.randrange(self.warps)};",
            "odd": f"and.b32 %i, %t, 1; setp.eq.u32 %p, %i, {rng.randrange(2)};",
            "below": f"setp.lt.u32 %p, %t, {rng.randrange(1, self.block + 1)};",
            "cta": f"setp.eq.u32 %p, %c, {rng.randrange(self.grid)};",
            "all": "",
        }[kind]
        if not line:
            return ""
        self.put(line)
        return "@%p "

    def actors(self) -> list[int]:
        """A few threads of different lanes, warps and CTAs."""
        per = self.block
        inside = (0, per - 1 if self.kind == "readers" else 1, 32 if per > 32 else 5)
        return [cta * per + lane for cta in range(self.grid) for lane in inside][:5]

    def place(self, size: int) -> tuple[str, str]:
        """Compute an address of some shared or global element: space and operand."""
        rng = self.rng
        index = rng.choice(
            (
                "mov.u32 %i, %t;",
                "mov.u32 %i, %t;",
                f"xor.b32 %i, %t, {rng.choice((1, 2, 16, 32, 33))};",
                f"mov.u32 %i, {rng.randrange(self.places)};",
                "mov.u32 %i, %w;",
                f"and.b32 %i, %t, {rng.choice((1, 3))};",
            )
        )
        likely = 1.0 if self.kind == "strengths" else 0.8
        if self.kind in ("patterns", "strengths") and rng.random() < likely:
            index = f"mov.u32 %i, {rng.randrange(self.places)};"
        if self.kind == "copies":
            index = index.replace("mov.u32 %i, %w;", "mov.u32 %i, %t;")
        self.put(index)
        near = size < 16 and self.kind != "strengths"
        offset = rng.choice((0, 0, 0, size)) if near else 0
        shared = {"patterns": 0.3, "strengths": 0.1}
        if rng.random() < shared.get(self.kind, 0.7):
            self.put(f"mad.lo.u32 %a, %i, {size}, %s;")
            return "shared", f"[%a+{offset}]"
        if self.kind != "strengths" and rng.random() < 0.5:
            self.put("mad.lo.u32 %i, %c, 100, %i;")
        self.put(f"mad.wide.u32 %d, %i, {size}, %g;")
        return "global", f"[%d+{offset}]"

    def value(self) -> None:
        if self.kind == "fences":  # of each thread and statement another
            self.put(f"mad.lo.u32 %v, %n, 64, {len(self.lines) % 61 + 1};")
            self.put("cvt.u16.u32 %h, %v; mov.b64 %x, {%v, %z};")
            return
        which = self.rng.choice(("mov.u32 %v, %t;", "mov.u32 %v, %w;", "mov.u32 %v, 7;", ""))
        self.put(which or f"mov.u32 %v, {self.rng.randrange(100)};")
        self.put("cvt.u16.u32 %h, %v; mov.b64 %x, {%v, %z};")

    # --- statements -----------------------------------------------------------------------------

    def plain(self) -> None:
        rng = self.rng
        form, size = rng.choice(
            (("b32", 4), ("b32", 4), ("b32", 4), ("b8", 1), ("b16", 2), ("b64", 8), ("v2", 8))
        )
        if self.kind in ("patterns", "copies") and rng.random() < 0.7:
            form, size = "b32", 4
        space, at = self.place(size)
        guard = self.who()
        register = {"b8": "%h", "b16": "%h", "b32": "%v", "b64": "%x", "v2": "{%v, %z}"}[form]
        into = {"b8": "%h", "b16": "%h", "b32": "%r", "b64": "%e", "v2": "{%r, %m}"}[form]
        type_ = "v2.b32" if form == "v2" else form
        if rng.random() < 0.5:
            self.put(f"{guard}ld.{space}.{type_} {into}, {at};")
        else:
            self.value()
            self.put(f"{guard}st.{space}.{type_} {at}, {register};")

    def strong(self) -> None:
        """An access with order words, or an atomic."""
        rng = self.rng
        mixed = self.kind == "strengths"
        wide = rng.random() < (0.3 if mixed else 0.15)
        type_, size = ("b64", 8) if wide else ("b32", 4)
        value, into = ("%x", "%e") if wide else ("%v", "%r")
        space, at = self.place(size)
        guard = self.who()
        pattern = self.kind == "patterns"
        scope = rng.choice(("cta", "gpu", "gpu", "gpu", "sys") if pattern else ("cta", "gpu"))
        what = rng.choice(("ld", "st", "atom", "red"))
        if mixed and self.exact and what in ("ld", "st") and rng.random() < 0.4:
            pattern = True
        if what in ("ld", "st") and not wide and mixed and rng.random() < 0.3:
            space, at = self.place(8)
            type_, value, into = "v2.b32", "{%v, %z}", "{%r, %m}"
        if what in ("ld", "st"):
            sem = {"ld": "acquire", "st": "release"}[what]
            words = f"{sem}.{scope}" if pattern and rng.random() < 0.6 else f"relaxed.{scope}"
            words = "volatile" if rng.random() < 0.2 else words
            self.value()
            operands = f"{into}, {at}" if what == "ld" else f"{at}, {value}"
            self.put(f"{guard}{what}.{words}.{space}.{type_} {operands};")
            return
        sems = ("relaxed", "acquire", "release", "acq_rel") if pattern else ("relaxed",)
        sem = rng.choice(sems if what == "atom" else sems[::2])
        self.value()
        operation = rng.choice(("add", "exch", "max") if what == "atom" else ("add", "max"))
        type_ = type_ if operation == "exch" else type_.replace("b", "u")
        operands = f"{into}, {at}, {value}" if what == "atom" else f"{at}, {value}"
        self.put(f"{guard}{what}.{sem}.{scope}.{space}.{operation}.{type_} {operands};")

    def layers(self) -> None:
        """A few threads make strong accesses of all scopes to a place of their own."""
        rng = self.rng
        self.next += 2
        self.value()
        for _ in range(rng.randrange(3, 5)):
            scope, (type_, value, into) = (
                rng.choice(("cta", "gpu", "gpu")),
                rng.choice((("b32", "%v", "%r"), ("b32", "%v", "%r"), ("b64", "%x", "%e"))),
            )
            self.put(f"setp.eq.u32 %p, %n, {rng.choice(self.actors()[::2])};")
            at = f"[%g+{4 * self.next}]"
            self.put(
                rng.choice(
                    (
                        f"@%p ld.relaxed.{scope}.global.{type_} {into}, {at};",
                        f"@%p ld.relaxed.{scope}.global.{type_} {into}, {at};",
                        f"@%p st.relaxed.{scope}.global.{type_} {at}, {value};",
                        f"@%p red.relaxed.{scope}.global.max.{type_.replace('b', 'u')} {at},"
                        f" {value};",
                    )
                )
            )

    def fence(self) -> None:
        guard = self.who()
        words = (
            "fence.acq_rel.gpu",
            "fence.acq_rel.cta",
            "fence.sc.gpu",
            "membar.gl",
            "membar.cta",
        )
        word = self.rng.choice(words[self.kind == "fences" :])
        self.put(f"{guard}{word};")

    def message(self) -> None:
        """One thread writes and signals; another looks and reads."""
        rng = self.rng
        giver, taker = rng.sample(self.actors(), 2)
        data, flag = rng.sample(range(8), 2)
        if self.apart:
            self.next += 2
            data, flag = self.next, self.next + 1
        scope = rng.choice(("cta", "gpu", "gpu", "gpu"))
        near = "cta" if rng.random() < 0.2 else scope
        sends = rng.choice(
            (
                f"st.release.{scope}.global.u32 [%g+{4 * flag}], %v;",
                f"fence.acq_rel.{near}; @%p st.relaxed.{scope}.global.u32 [%g+{4 * flag}], %v;",
                f"membar.gl; @%p st.volatile.global.u32 [%g+{4 * flag}], %v;",
                f"fence.acq_rel.gpu; @%p red.relaxed.{scope}.global.add.u32 [%g+{4 * flag}], %v;",
                f"atom.release.{scope}.global.add.u32 %r, [%g+{4 * flag}], %v;",
                f"st.relaxed.{scope}.global.u32 [%g+{4 * flag}], %v;",
            )
        )
        takes = rng.choice(
            (
                f"ld.acquire.{scope}.global.u32 %r, [%g+{4 * flag}];",
                f"ld.relaxed.{scope}.global.u32 %r, [%g+{4 * flag}]; @%p fence.acq_rel.{near};",
                f"ld.volatile.global.u32 %r, [%g+{4 * flag}]; @%p membar.gl;",
                f"atom.acq_rel.{scope}.global.add.u32 %r, [%g+{4 * flag}], 1;",
                f"ld.relaxed.{scope}.global.u32 %r, [%g+{4 * flag}];",
            )
        )
        if self.kind == "strengths":  # the flag is the second word of a vector for one of them
            pair = flag & ~1
            if rng.random() < 0.5:
                sends = f"st.release.{scope}.global.v2.u32 [%g+{4 * pair}], {{%z, %v}};"
                takes = takes.replace(f"[%g+{4 * flag}]", f"[%g+{4 * pair + 4}]")
            else:
                sends = sends.replace(f"[%g+{4 * flag}]", f"[%g+{4 * pair + 4}]")
                takes = f"ld.acquire.{scope}.global.v2.u32 {{%r, %m}}, [%g+{4 * pair}];"
            data = 10
        self.value()
        self.put(f"setp.eq.u32 %p, %n, {giver};")
        self.put(f"@%p st.global.u32 [%g+{4 * data}], %v;", f"@%p {sends}")
        if rng.random() < (0.0 if self.apart else 0.3):
            self.strong()
        self.put(f"setp.eq.u32 %p, %n, {taker};", f"@%p {takes}")
        self.put(f"@%p ld.global.u32 %r, [%g+{4 * data}];")

    def barrier(self) -> None:
        self.put(self.rng.choice(("bar.sync 0;", "barrier.sync 0;", f"bar.sync 0, {self.full()};")))

    def full(self) -> int:
        return 32 * self.warps

    def warp_sync(self) -> None:
        self.put("bar.warp.sync 0xffffffff;")

    def part_sync(self) -> None:
        """Parts of each warp meet among themselves, by one instruction or by two."""
        low = self.rng.choice((0xFFFF, 0x3, 0x55555555, 0x1))
        self.put(
            f"mov.u32 %m, 1; shl.b32 %m, %m, %l; and.b32 %m, %m, {low}; setp.ne.u32 %p, %m, 0;"
        )
        if self.rng.random() < 0.4:
            self.put(f"selp.u32 %m, {low}, {~low & 0xFFFFFFFF}, %p;", "bar.warp.sync %m;")
            return
        other, after = self.label(), self.label()
        self.put(f"@!%p bra {other};", f"bar.warp.sync {low};", f"bra {after};", f"{other}:")
        if self.rng.random() < 0.6:
            self.put(f"bar.warp.sync {~low & 0xFFFFFFFF};")
        self.put(f"{after}:")

    def named_barrier(self) -> None:
        """Some warps meet; or some arrive and others wait for them."""
        if self.warps < 2 or self.named == 15:
            self.part_sync()
            return
        self.named += 1
        warps = self.rng.sample(range(self.warps), self.rng.randrange(2, self.warps + 1))
        gives = self.rng.choice((0, 1, len(warps) - 1))
        count = 32 * len(warps)
        if gives:
            self.arrives = True
            self._warps(warps[:gives], f"bar.arrive {self.named}, {count};")
            if self.rng.random() < 0.4:
                self.plain()
        self._warps(warps[gives:], f"bar.sync {self.named}, {count};")

    def _warps(self, warps: list[int], what: str) -> None:
        after = self.label()
        bits = sum(1 << w for w in warps)
        self.put(f"mov.u32 %m, 1; shl.b32 %m, %m, %w; and.b32 %m, %m, {bits};")
        self.put("setp.eq.u32 %q, %m, 0;", f"@%q bra {after};", what, f"{after}:")

    def crowd(self) -> None:
        """All threads of a CTA read a place of its own; one waits for most of them and writes."""
        self.next += 2
        place, taker = f"[%a+{4 * self.next}]", self.rng.choice(self.actors()) % self.block
        self.put("mov.u32 %a, s;", f"ld.shared.b32 %r, {place};")
        self.phase(taker)
        self.value()
        self.put(f"setp.eq.u32 %p, %t, {taker};", "mov.u32 %a, s;")
        self.put(f"@%p st.shared.b32 {place}, %v;")

    def phase(self, taker: int | None = None) -> None:
        """Some threads of each CTA arrive at an mbarrier of their own; some wait for them."""
        rng = self.rng
        if len(self.expected) == 16:
            self.barrier()
            return
        at = f"[bars+{8 * len(self.expected)}]"
        one, late = rng.randrange(self.block), rng.randrange(self.block)
        self.expected.append(0)
        arrive = f"mbarrier.arrive.shared.b64 %state, {at};"
        test, count = rng.choice(
            (
                ("setp.ne.u32 %p, %t, 9999;", self.block),
                (f"setp.ne.u32 %p, %t, {late};", self.block - 1),
                (f"setp.ne.u32 %p, %t, {late};", self.block - 1),
                (f"setp.le.u32 %p, %t, {one};", one + 1),
                (f"setp.eq.u32 %p, %t, {one};", 1),
            )
        )
        if taker is not None:
            test, count = f"setp.ne.u32 %p, %t, {late};", self.block - 1
        self.expected[-1] = count
        self.put(test, f"@%p {arrive}")
        if rng.random() < 0.4:
            self.plain()
        again, after = self.label(), self.label()
        self.put(
            f"setp.eq.u32 %q, %t, {taker};"
            if taker is not None
            else rng.choice(
                (
                    "setp.ne.u32 %q, %t, 9999;",
                    f"setp.eq.u32 %q, %t, {rng.choice(self.actors()) % self.block};",
                    f"setp.eq.u32 %q, %t, {rng.choice(self.actors()) % self.block};",
                    f"setp.eq.u32 %q, %w, {rng.randrange(self.warps)};",
                )
            ),
            f"@!%q bra {after};",
            f"{again}: mbarrier.test_wait.parity.shared.b64 %q, {at}, 0; @!%q bra {again};",
            f"{after}:",
        )

    def copy(self) -> None:
        size = self.rng.choice((4, 4, 8, 16))
        self.put(self.rng.choice(("mov.u32 %i, %t;", "mov.u32 %i, %t;", "xor.b32 %i, %t, 1;")))
        self.put(f"mad.lo.u32 %a, %i, {size}, %s; mad.wide.u32 %d, %i, {size}, %g;")
        offset = self.rng.choice((0, 0, 512))
        self.put(f"{self.who()}cp.async.ca.shared.global [%a+{offset}], [%d], {size};")
        if self.rng.random() < 0.6:
            self.put("cp.async.commit_group;")

    def wait(self) -> None:
        guard = self.who() if self.rng.random() < 0.2 or self.kind == "readers" else ""
        some = ("cp.async.wait_group 0", "cp.async.wait_group 1", "cp.async.wait_all")
        self.put(f"{guard}{self.rng.choice(some)};")

    def reuse(self) -> None:
        """Some threads read a place of their own, also by cp.async; then one writes it."""
        rng = self.rng
        self.next += 2
        place = f"[%g+{4 * self.next}]"
        meet = (self.barrier, self.warp_sync, self.wait, self.wait)
        if self.kind == "phases":
            meet = (self.phase, self.phase, self.warp_sync)
        if self.kind == "parts":
            meet = (self.part_sync, self.part_sync, self.named_barrier)
        for _ in range(rng.randrange(1, 5)):
            guard = self.who()
            if self.kind in ("parts", "phases") or rng.random() < 0.4:
                self.put(f"{guard}ld.global.b32 %r, {place};")
            else:
                self.put("mad.lo.u32 %a, %n, 4, %s; add.u32 %s, %s, 4;")
                self.put(f"{guard}cp.async.ca.shared.global [%a], {place}, 4;")
                self.put(rng.choice(("", "cp.async.commit_group;")))
            if rng.random() < self.order:
                rng.choice(meet)()
        if self.kind == "readers" and rng.random() < 0.8:
            self.put(rng.choice(("cp.async.wait_all;", "cp.async.wait_group 1;")), "bar.sync 0;")
        self.value()
        self.put(f"setp.eq.u32 %p, %n, {rng.choice(self.actors())};")
        self.put(f"@%p st.global.b32 {place}, %v;")

    # --- programs -------------------------------------------------------------------------------

    def statement(self) -> None:
        rng = self.rng
        likely = {"patterns": 0.5, "strengths": 0.95}
        if self.apart and rng.random() < 0.9:
            rng.choice((self.message, self.message, self.message, self.fence, self.barrier))()
        elif rng.random() < self.order:
            choices = [self.barrier, self.warp_sync]
            if self.kind == "parts":
                choices += [self.named_barrier, self.named_barrier, self.part_sync]
            if self.kind == "patterns":
                choices = [self.barrier, self.message, self.message, self.message, self.fence]
            if self.kind == "fences":
                choices += [self.fence, self.fence, self.fence, self.fence, self.part_sync]
            if self.kind in ("copies", "readers"):
                choices += [self.wait, self.wait]
            if self.kind == "phases":
                choices += [self.phase, self.phase, self.phase]
            if self.exact:
                choices += [self.fence, self.message]
            rng.choice(choices)()
        elif self.kind == "phases" and rng.random() < 0.15:
            self.crowd()
        elif self.kind == "readers" or (self.kind in ("parts", "phases") and rng.random() < 0.25):
            self.reuse()
        elif self.kind == "copies" and rng.random() < 0.4:
            self.copy()
        elif self.kind == "strengths" and rng.random() < 0.6:
            self.layers()
        elif self.kind != "fences" and rng.random() < likely.get(self.kind, 0.2):
            self.strong()
        else:
            self.plain()

    def loop(self) -> None:
        """Two rounds of a few statements."""
        head = self.label()
        counter = f"%k{self.labels}"
        self.arrives = False
        self.put(f".reg .b32 {counter};", f"mov.u32 {counter}, 0;", f"{head}:")
        for _ in range(self.rng.randrange(2, 5)):
            self.statement()
        if self.arrives:
            self.put("bar.sync 0;")
        self.put(f"add.u32 {counter}, {counter}, 1; setp.lt.u32 %q, {counter}, 2; @%q bra {head};")


def make(kind: str, seed: int) -> Program:
    """The program of a kind and seed."""
    rng = random.Random(f"{kind} {seed}")
    block = rng.choice((32, 64, 96, 40))
    several = kind in ("patterns", "strengths")
    grid = rng.choice((1, 2, 2, 3)) if several else rng.choice((1, 1, 2, 3))
    if kind == "readers":
        grid = rng.choice((1, 1, 1, 2))
    writer = _Writer(rng, kind, grid, block)
    writer.order = rng.choice((0.2, 0.4, 0.5, 0.6, 0.75))
    writer.places = rng.choice((1, 2, 4, 8))
    writer.apart = kind == "patterns" and rng.random() < 0.5
    if kind == "strengths":
        writer.exact, writer.places = rng.random() < 0.5, 1
    short = writer.apart or kind in ("parts", "readers", "strengths", "phases")
    loops = 0.0 if kind == "phases" else 0.1  # an mbarrier of these has one phase
    for _ in range(rng.randrange(2, 8) if short else rng.randrange(4, 14)):
        (writer.loop if rng.random() < loops else writer.statement)()
    begin = [
        f"@%p mbarrier.init.shared.b64 [bars+{8 * k}], {count};"
        for k, count in enumerate(writer.expected)
    ]
    if begin:
        begin = ["setp.eq.u32 %p, %t, 0;", *begin, "bar.sync 0;"]
    body = "\n".join([*begin, *writer.lines])
    return Program(f"{_HEAD}{body}\nret;\n}}\n", grid, block)

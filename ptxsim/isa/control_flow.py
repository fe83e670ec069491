"""Control flow instructions (PTX ISA 9.1, Control Flow Instructions; Miscellaneous)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .protocol import Array, Registers, Step, no_effect
from .record import STAND_IN, Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Control Flow Instructions: "


class _Control(Instruction):
    control = True


class _Uniform(_Control):
    """With ``.uni`` the lanes of a warp that execute it have one guard and one target."""

    traps: ClassVar[tuple[str, ...]] = ("uni-divergence",)

    def target(self, b: Any) -> Callable[[Registers], Array] | None:
        """What lanes go by once the guard is true: the same for all if None."""
        return None

    def promise(self, b: Any) -> Step | None:
        if not b.mods.uni:
            return None
        what, find = "guard", b.guard()
        if b.instruction.guard is None:
            what, find = "target", self.target(b)
        if find is None:
            return None
        site = b.site

        def look(r: Registers, g: Any) -> None:
            bad = g.disagreeing(find(r))
            if bad is not None:
                g.finding(
                    "uni-divergence",
                    f"lanes of a warp that execute '{site.text}' together differ in its {what}",
                    site,
                    bad,
                    help="leave out .uni, or make the lanes of each warp agree",
                )

        return look


@instruction("bra", isa=_SECTION + "bra")
class Bra(_Uniform):
    """Branch to a label; lanes with a true guard go, the others go on."""

    forms = (Form("uni?", "@label"),)
    reads_guard = True
    needs_defined = True

    def transfer(self, b: Any) -> Any:
        target = b.label("label")
        if b.instruction.guard is None:
            return lambda r, g: g.jump(target)
        place, negated, after = b.instruction.guard.index, b.instruction.guard_negated, b.next()
        if negated:
            return lambda r, g: g.branch(~r[place], target, after)
        return lambda r, g: g.branch(r[place], target, after)


@instruction("brx.idx", isa=_SECTION + "brx.idx", floor="6.0+sm_30")
class BrxIdx(_Uniform):
    """Branch to the label of a list that an index selects; an index past its end is a trap."""

    forms = (Form("uni?", "a.u32, @targets"),)
    needs_defined = True
    traps = ("bad-branch-index", "uni-divergence")

    def target(self, b: Any) -> Callable[[Registers], Array]:
        index = b.source("a")
        return lambda r: r[index]

    def transfer(self, b: Any) -> Any:
        index = b.source("a")
        blocks = b.labels("targets")
        site = b.site
        count = np.uint32(len(blocks))

        def transfer(r: Registers, g: Any) -> Any:
            bad = r[index] >= count
            if g.active is not None:
                bad = bad & g.active
            if bad.any():
                value = int(g.full(r[index])[np.flatnonzero(g.full(bad))[0]])
                g.finding(
                    "bad-branch-index",
                    f"index {value} is past the end of a list of {len(blocks)} targets",
                    site,
                    g.full(bad),
                    fatal=True,
                )
            return g.switch(r[index], blocks)

        return transfer


@instruction("call", isa=_SECTION + "call")
class Call(_Uniform):
    """Call a function by name or through a register."""

    forms = (Form("uni?", "@call"),)
    needs_defined = True
    traps = ("bad-call", "stack-overflow", "uni-divergence")

    def falls_through(self, m: Mods) -> bool:
        return True

    def target(self, b: Any) -> Callable[[Registers], Array] | None:
        place = b.call().target
        return (lambda r: r[place]) if isinstance(place, int) else None

    def transfer(self, b: Any) -> Any:
        plan = b.call()
        site = b.site
        return lambda r, g: g.call(plan, site)


@instruction("ret", isa=_SECTION + "ret")
class Ret(_Uniform):
    """Return from a function; in an entry it ends the thread."""

    forms = (Form("uni?", ""),)

    def transfer(self, b: Any) -> Any:
        return lambda r, g: g.ret()


@instruction("exit", isa=_SECTION + "exit")
class Exit(_Control):
    """End the thread."""

    forms = (Form("", ""),)

    def transfer(self, b: Any) -> Any:
        return lambda r, g: g.exit()


class _Fault(_Control):
    message = ""

    def transfer(self, b: Any) -> Any:
        site = b.site

        def fault(r: Registers, g: Any) -> Any:
            g.finding("trap", self.message, site, fatal=True)

        return fault


@instruction("trap", isa="Miscellaneous Instructions: trap")
class Trap(_Fault):
    """Abort the launch."""

    forms = (Form("", ""),)
    message = "the kernel executed trap"
    traps = ("trap",)


@instruction("brkpt", isa="Miscellaneous Instructions: brkpt")
class Brkpt(_Fault):
    """Suspend for a debugger; without one the launch ends."""

    forms = (Form("", ""),)
    message = "the kernel executed brkpt and no debugger is there"
    traps = ("trap",)


@instruction("nanosleep", isa="Miscellaneous Instructions: nanosleep", floor="6.2+sm_70")
class Nanosleep(Instruction):
    """Suspend the thread for a while: other lanes get their turn."""

    forms = (Form("type:{u32}", "a.u32"),)

    def waits(self, m: Mods) -> bool:
        return True

    def bind(self, b: Any) -> Step:
        b.source("a")
        return no_effect


@instruction("pmevent", isa="Miscellaneous Instructions: pmevent")
class Pmevent(Instruction):
    """Trigger performance monitor events: no effect on values."""

    forms = (Form("mask?:{mask@3.0}", "#a.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """There are 16 events (PTX ISA 9.1, pmevent)."""
        if m.mask and value >> 16:
            return f"a mask of events has 16 bits, not {value}"
        if not m.mask and value > 15:
            return f"events are numbered 0 to 15, not {value}"
        if value > 0xFFFF:
            return f"a mask of 16 events has 16 bits: {value:#x}"
        return None

    def bind(self, b: Any) -> Step:
        return no_effect


class _Setmaxnreg(Instruction):
    """A change of the number of registers: no effect on values."""

    forms = (Form("sync aligned type:{u32}", "#count.type"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A multiple of 8 from 24 to 256 (PTX ISA 9.1, setmaxnreg)."""
        legal = value % 8 == 0 and 24 <= value <= 256
        return None if legal else f"a multiple of 8 from 24 to 256 is expected, not {value}"

    def bind(self, b: Any) -> Step:
        return no_effect


_SETMAXNREG = "Miscellaneous Instructions: setmaxnreg"
_WARPGROUPS = "8.0+sm_90a/sm_100a/sm_100f/sm_110a/sm_110f/sm_120a/sm_120f"


@instruction("setmaxnreg.inc", isa=_SETMAXNREG, floor=_WARPGROUPS)
class SetmaxnregInc(_Setmaxnreg):
    """Ask for more registers: no effect on values."""


@instruction("setmaxnreg.dec", isa=_SETMAXNREG, floor=_WARPGROUPS)
class SetmaxnregDec(_Setmaxnreg):
    """Give registers back: no effect on values."""


@instruction(
    "griddepcontrol",
    isa="Parallel Synchronization and Communication Instructions: griddepcontrol",
    floor="7.8+sm_90",
)
class Griddepcontrol(Instruction):
    """Let dependent grids begin, or wait for those before: launches here follow each other."""

    forms = (Form("action:{launch_dependents wait}", ""),)

    def bind(self, b: Any) -> Step:
        return no_effect


@instruction(STAND_IN, isa="")
class Unsupported(_Control):
    """Stands for an instruction that ptxsim does not model; reaching it ends the launch."""

    forms = (Form("", ""),)

    def transfer(self, b: Any) -> Any:
        site = b.site

        def stop(r: Registers, g: Any) -> Any:
            g.finding("unsupported", f"'{site.text}' is not modelled by ptxsim", site, fatal=True)

        return stop

"""The front of the lowering: a kernel of the IR becomes PTX, or every reason why it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from ptxsim.build import Kernel as Text
from ptxsim.errors import UsageError
from ptxsim.targets import TARGETS

from .check import check_kernel, sm_number
from .emit import Planted, emit_kernel
from .facts import Launch
from .ir import Block, Kernel, Statement
from .mma import Mma
from .preconditions import RULES, Access, examine
from .refusals import Refusal, refuse
from .repair import ANY_VALUE, repaired
from .text import to_text
from .via import Via
from .walk import uses_fragments
from .wmma import Wmma

__all__ = ["VIAS", "Lowered", "lower_coopmat"]

#: The sets of instructions that cooperative matrices can be lowered to.
VIAS: dict[str, type[Wmma] | type[Mma]] = {"wmma": Wmma, "mma": Mma}


@dataclass(frozen=True)
class Lowered:
    """PTX of a kernel, what it tests at run time, and what needed no test."""

    source: Kernel
    kernel: Text
    via: str
    rule: str
    planted: tuple[Planted, ...]
    accesses: tuple[Access, ...]

    def text(self) -> str:
        """The whole module."""
        return self.kernel.text()

    def explain(self) -> str:
        """Which tests were planted where, and which were proved needless, by statement."""
        lines = [f"{self.source.name}: {self.via} for {self.kernel.target}, rule {self.rule}", ""]
        lines.append("tested at run time, with a trap:")
        for p in self.planted:
            where = "at the entry" if p.line == 0 else f"at line {p.line}"
            if p.hoisted and p.line:
                where = f"before the loop of line {p.line}"
            lines.append(f"  {where}: {p.check}")
        if not self.planted:
            lines.append("  nothing")
        lines += ["", "proved, not tested:"]
        for access in self.accesses:
            s = access.statement
            for check, reason in access.proved:
                lines.append(f"  line {s.line}, {s.name}: {check}: {reason}")
        if not any(a.proved for a in self.accesses):
            lines.append("  nothing")
        return "\n".join(lines) + "\n"


def lower_coopmat(
    kernel: Kernel,
    *,
    target: str = "sm_80",
    version: tuple[int, int] | None = None,
    block: tuple[int, int, int] | None = None,
    via: str = "wmma",
    rule: str = "ptx",
    bounds: bool | None = None,
    faithful: bool = False,
) -> Lowered:
    """Lower a kernel of cooperative matrices to PTX for ``target``.

    ``block`` is the shape of the thread block, of the launch if the kernel does not say it.
    ``rule`` is what is tested before an access: ``ptx`` what the PTX ISA demands, so that no launch
    that passes the tests is undefined; ``cuda`` what the seed tests.  ``bounds`` adds the test that
    a tile lies in its buffer (by default with the rule ``ptx``).  ``faithful`` refuses what the
    seed does not lower, with its rule.  Raises :class:`Refused` with all reasons, and
    :class:`ptxsim.UsageError` for options that do not exist.
    """
    if via not in VIAS:
        raise UsageError(f"no instructions '{via}'; there are: {', '.join(VIAS)}")
    if rule not in RULES:
        raise UsageError(f"no rule '{rule}'; there are: {', '.join(RULES)}")
    if faithful:
        rule = "cuda"
    instructions: type[Via] = VIAS[via]
    if block is not None and kernel.block not in (None, block):
        raise UsageError(f"the kernel is for a block of {kernel.block}, not {block}")
    if faithful and via != "wmma":
        raise UsageError("the seed lowers to wmma only; leave --faithful out with --via mma")
    kernel = replace(kernel, body=_distinct(kernel.body), block=block or kernel.block)
    if version is None:
        version = max((8, 0), TARGETS.get(target, (0, 0)))
    checked = check_kernel(kernel, target, version, instructions, kernel.block, faithful)
    found = checked.refusals
    if not any(r.code == "R28" and not r.line for r in found):
        # what is wrong by itself stands for any value, so that all the rest is judged too
        judged = replace(kernel, body=repaired(kernel.body, checked.wrong))
        block_known = None if "R16" in {r.code for r in found} else kernel.block
        arrays = {a.name: a for a in (*kernel.arrays, *ANY_VALUE)}
        launch = Launch(block_known, {p.name: p for p in kernel.params}, arrays)
        ptx = rule == "ptx" if bounds is None else bounds
        known = examine(judged, launch, instructions, rule, ptx, checked.skipped)
        found = _sorted([*found, *known.refusals])
    refuse(found)
    text = Text(kernel.name, target, version, reqntid=kernel.block)
    text.header += _header(kernel, via, rule)
    number = sm_number(target)
    assert number is not None
    chosen = VIAS[via] if uses_fragments(kernel.body) else Wmma
    planted = emit_kernel(text, kernel, chosen(text, number), known, launch, rule)
    return Lowered(
        kernel, text, via, rule, tuple(planted), tuple(known.accesses.values())
    )  # fmt: skip


def _sorted(refusals: Sequence[Refusal]) -> list[Refusal]:
    return sorted(refusals, key=lambda r: r.line)


def _header(kernel: Kernel, via: str, rule: str) -> list[str]:
    what = f"cooperative matrices by {via}, rule {rule}"
    return [f"{kernel.name}: {what}", *to_text(kernel).splitlines()]


def _distinct(block: Block) -> Block:
    """The same block, every statement an object of its own."""
    return replace(block, statements=tuple(map(_copy, block.statements)))


def _copy(s: Statement) -> Statement:
    inner = {
        f.name: _distinct(getattr(s, f.name))
        for f in fields(s)
        if isinstance(getattr(s, f.name), Block)
    }
    if isinstance(s, Block):
        return _distinct(s)
    return replace(s, **inner)  # type: ignore[arg-type]

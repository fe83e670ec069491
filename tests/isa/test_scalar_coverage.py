"""No form of a scalar instruction is left without a model: every one is in one of the tables."""

from __future__ import annotations

import pytest
import test_bit_rules
import test_conversion_rules
import test_float_rules
from approximations import RANGES
from form_lines import Line, lines

from ptxsim.isa.record import Pure, registry

#: pure instructions that are tested elsewhere, and where
ELSEWHERE = {
    "createpolicy.fractional": "its value is opaque",
    "cvta": "tests/machine/test_checks.py",
    "mbarrier.pending_count": "tests/isa/test_mbarrier.py",
}

NAMES = [n for n in registry.names() if any(isinstance(r, Pure) for r in registry[n])]

_FLOAT = {
    (case.operation, *sorted((*case.modifiers, *case.types)))
    for group in test_float_rules.GROUPS
    for case in group
}
_BITS = {name for family in test_bit_rules.FAMILIES for name in family}
_CONVERSIONS = {line.text for group in test_conversion_rules.GROUPS.values() for line in group}
_APPROXIMATE = {r.instruction for r in RANGES}


def _modelled(line: Line) -> bool:
    opcode = line.text.split(" ")[0]
    name, *words = opcode.split(".")
    if line.record.name == "cvt.pack" or line.text in _CONVERSIONS:
        return True
    if "approx" in words or "full" in words:
        return opcode.removesuffix("x2") in _APPROXIMATE
    if test_bit_rules.is_float(line) and (name in test_bit_rules.ARITHMETIC or name not in _BITS):
        return (name, *sorted(words)) in _FLOAT
    return name in _BITS


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(ELSEWHERE)))
def test_every_form_has_a_model(name: str) -> None:
    missing = [x.text for x in lines(name) if isinstance(x.record, Pure) and not _modelled(x)]
    assert not missing


def test_a_form_without_a_model_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "_BITS", set())
    assert not all(_modelled(line) for line in lines("popc"))

"""Forms: matching, and that exactly one of a mnemonic's forms takes an instruction."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from form_samples import records_matching, sample_text, sample_words, shapes

from ptxsim.isa.record import Form, FormMismatch, Instruction, registry
from tests.accepted_lines import Place, verdicts

NAMES = [name for name in registry.names() if name != "unsupported"]


#: Not drawn.  Without .sync, shfl and vote end with PTX ISA 6.3 (for sm_70 and later): too early
#: for the module here.  ptxas 13.5 takes membar.proxy.async, ptxas 13.0 does not.
_WITHDRAWN = {"shfl", "vote", "membar"}


def _overlaps(name: str, tries: int) -> list[tuple[str, list[Form]]]:
    """Instructions under a mnemonic that two forms take alike.

    Two forms that are not modelled may: whichever is found, the answer is the same.
    """
    out = []
    for record in registry[name]:
        for form in record.forms:
            for words, m in sample_words(record, form, random.Random(name), tries):
                mine = shapes(record, form, m)
                others = [
                    f for r, f, n in records_matching(name, words)
                    if f is not form and mine & shapes(r, f, n)
                    and not (f.unsupported and form.unsupported)
                ]  # fmt: skip
                if others:
                    out.append((".".join((name, *words)), [form, *others]))
    return out


@pytest.mark.parametrize("name", NAMES)
def test_no_two_forms_take_the_same_instruction(name: str) -> None:
    assert not _overlaps(name, 20)


def test_an_overlap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: a record with the same form twice."""

    class Twice(Instruction):
        name = "twice"
        forms = tuple(Form("type:{b32}", "=d.type, a.type") for _ in range(2))

    monkeypatch.setitem(registry._records, "twice", [Twice()])
    assert _overlaps("twice", 1)


class TestMatch:
    """Modifiers are free in their order, type words are not (measured)."""

    FORM = Form("rnd:{rn rz} sat? dtype:{f16 u16} type:{f16 u16}", "=d.dtype, a.type")

    def test_any_order(self) -> None:
        m = self.FORM.match(("sat", "rn", "u16", "f16"))
        assert (m.rnd, m.sat, m.dtype, m.type) == ("rn", "sat", "u16", "f16")

    def test_a_type_word_never_goes_before_an_earlier_one(self) -> None:
        form = Form("dtype:{f16 s16} type:{u16 f16}", "=d.dtype, a.type")
        with pytest.raises(FormMismatch, match="appears too often or in the wrong place"):
            form.match(("u16", "f16"))

    def test_twice(self) -> None:
        with pytest.raises(FormMismatch, match=r"modifier \.rn appears too often"):
            self.FORM.match(("rn", "sat", "rn", "u16", "f16"))

    def test_some_words_may_stand_twice(self) -> None:
        assert self.FORM.match(("rn", "sat", "sat", "u16", "f16")).sat == "sat"

    def test_a_word_of_the_mnemonic_stands_before_the_others(self) -> None:
        form = Form("half!:{lo hi} cc type:{u32}", "=d.type")
        assert form.match(("lo", "u32", "cc")).half == "lo"
        with pytest.raises(FormMismatch, match=r"modifier \.lo appears too often or in the wrong"):
            form.match(("cc", "lo", "u32"))

    def test_unknown(self) -> None:
        with pytest.raises(FormMismatch, match=r"modifier \.rm is not legal here"):
            self.FORM.match(("rm", "u16", "f16"))

    def test_missing(self) -> None:
        with pytest.raises(FormMismatch, match=r"a modifier is missing: one of \.rn \.rz"):
            self.FORM.match(("u16", "f16"))


def _samples(count: int) -> list[str]:
    """Instructions from all records, in a seeded choice."""
    rng = random.Random(7)
    lines = []
    for name in sorted(set(NAMES) - _WITHDRAWN):
        for record in registry[name]:
            for form in record.forms:
                for words, m in sample_words(record, form, rng, 3):
                    line = sample_text(record, form, words, m)
                    # ptxas 13.5 takes a cache policy with cas and 128-bit atomics, 13.0 does not.
                    later = "L2::cache_hint" in words and {"b128", "cas"} & set(words)
                    if line is not None and not later:
                        lines.append(line)
    return sorted(rng.sample(lines, count))


#: Where the samples are judged, and the CUDA release whose assembler knows it.
_PLACES = [(Place("8.3", "sm_90"), (12, 3)), (Place("9.0", "sm_100a"), (13, 0))]


def _met(lines: list[str], place: Place) -> list[str]:
    """Those whose floors the version and target meet; no other reason to refuse one is there."""
    found = verdicts([(line, place) for line in lines])
    wrong = [(line, f) for line, f in zip(lines, found, strict=True)
             if f[0] not in ("legal", "unsupported", "PTX107")]  # fmt: skip
    assert not wrong
    return [line for line, f in zip(lines, found, strict=True) if f[0] != "PTX107"]


def test_samples_resolve() -> None:
    """What the records generate, the resolver takes where its floors are met."""
    lines = _samples(900)
    assert [len(_met(lines, place)) > 300 for place, _ in _PLACES] == [True, True]


@pytest.mark.ptxas
@pytest.mark.parametrize(("place", "release"), _PLACES, ids=str)
def test_ptxas_accepts_samples(place: Place, release: tuple[int, int], tmp_path: Path) -> None:
    """NVIDIA's assembler takes a seeded sample of what the records call legal."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not on PATH")
    told = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+)\.(\d+)", told)
    assert found
    if (int(found[1]), int(found[2])) < release:
        pytest.skip(f"ptxas of CUDA {found[1]}.{found[2]} does not know {place}")
    path = tmp_path / "samples.ptx"
    path.write_text(place.module(_met(_samples(400), place))[0])
    command = [ptxas, f"-arch=compute_{place.target[3:]}", "-o", str(tmp_path / "out"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr

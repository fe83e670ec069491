"""What is proved of cooperative matrices before a launch: a check that is left out cannot fire."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import (
    MANY,
    STORE,
    launch,
    lower,
    product_arguments,
    product_with,
    refusals,
    traps,
    without_traps,
)
from coopmat_random import RandomTiles

from lowering.coopmat.api import Lowered

#: An access whose checks are all proved but for the base and the extent, and what is around it.
PROVED: list[tuple[str, str, dict[str, Any]]] = [
    ("a[at * 16] stride 16", "LOAD", {}),
    ("a[at * 32 + 16] stride 16", "LOAD", {}),
    ("a[at << 4] stride 16", "LOAD", {}),
    ("a[(at * 4 + n * 8) * 4] stride 16", "LOAD", {}),
    ("a[at & -16] stride 16", "LOAD", {}),
    ("a[at / 16 * 16] stride 16", "LOAD", {}),
    ("a[far * 16i64] stride 16", "LOAD", {}),
    ("a[0] stride n * 16", "LOAD", {}),
    ("a[n * 16] stride n", "if n % 16 == 0 { LOAD }", {}),
    ("a[0] stride n", "if n % 16 == 0 && n >= 16 { LOAD }", {}),
    ("a[at] stride n", "if at % 16 == 0 { if n % 32 == 16 { LOAD } }", {}),
    ("a[i * 16] stride 16", "for i = 0 to at { LOAD }", {}),
    ("a[v] stride 16",
     "let mut v: int32 = 0; while v < at { LOAD v = v + 16; }", {}),
    ("a[v] stride 16",
     "let mut v: int32 = at * 16; if n < 3 { v = v + 16; } else { v = n * 32; } LOAD", {}),
    ("tile[(at & 15) * 16] stride 16", "LOAD", {}),
]  # fmt: skip


def _forced(text: str) -> str:
    """A text with the checks that the lowering left out: the base and stride of each load of A."""
    lines, extra = [], 0
    for line in text.splitlines():
        found = re.match(r"\s*wmma\.load\.a\S* \{[^}]*\}, \[(%rd\d+)\], (\S+);", line)
        if found:
            address, stride = found.groups()
            lines += [
                "    // trap unless the address is aligned",
                f"    and.b64 %check_d, {address}, 31;",
                "    setp.ne.u64 %check_p, %check_d, 0;",
                "    @%check_p trap;",
                "    // trap unless the stride is aligned",
                f"    mov.b32 %check_r, {stride};",
                "    and.b32 %check_r, %check_r, 15;",
                "    setp.ne.u32 %check_p, %check_r, 0;",
                "    @%check_p trap;",
            ]
            extra += 1
        lines.append(line)
    assert extra
    out = "\n".join(lines) + "\n"
    return out.replace(
        ")\n.reqntid 32, 1, 1\n{\n",
        ")\n.reqntid 32, 1, 1\n{\n    .reg .b64 %check_d; .reg .b32 %check_r;"
        " .reg .pred %check_p;\n",
    )


FORCED = ("the address is aligned", "the stride is aligned")


def _residues(lowered: Lowered, ptx: str, count: int) -> set[str]:
    """The checks that trap over the residues of ``at`` and ``n`` modulo 32."""
    found = set()
    # each residue of both in the first 32 pairs, all pairs in 1024
    pairs = [(k % 32, (13 * k + k // 32) % 32) for k in range(count)]
    for at, n in pairs:
        arguments = product_arguments(at=at, n=n, far=at, a=np.ones(4 * MANY, np.float16))
        report = launch(lowered, arguments, ptx=ptx, smem=1024)
        if [f.class_ for f in report.findings] == ["trap"]:
            found.add(traps(report, ptx)[0])
    return found


def _proved(case: tuple[str, str, dict[str, Any]]) -> Lowered:
    access, around, options = case
    load = f"load v (a 16x16x16 f16) from {access} row;"
    body = "fragment v: a 16x16x16 f16; " + around.replace("LOAD", load)
    return lower(product_with(store=body + STORE), bounds=False, **options)


def _alignment_checks(lowered: Lowered) -> list[str]:
    return [
        p.check for p in lowered.planted
        if ("[" in p.check and "multiple of" in p.check) or p.check.startswith("stride")
    ]  # fmt: skip


@pytest.mark.parametrize("case", PROVED, ids=lambda c: f"{c[0]}, {c[1][:30]}")
@pytest.mark.parametrize(
    "count", [pytest.param(32, id="some"), pytest.param(1024, marks=pytest.mark.slow, id="all")]
)
def test_proved_checks_cannot_fire(case: tuple[str, str, dict[str, Any]], count: int) -> None:
    """All residues of the free variables modulo 32, with the checks put back by hand."""
    lowered = _proved(case)
    assert [c for c in _alignment_checks(lowered) if "at least" not in c] == []
    fired = _residues(lowered, _forced(lowered.text()), count)
    assert fired.isdisjoint(FORCED), fired


#: Neighbours of the cases above whose checks are needed, and what must fire.
UNPROVED = [
    ("a[at * 8] stride 16", "LOAD", 0), ("a[at << 3] stride 16", "LOAD", 0),
    ("a[at & -8] stride 16", "LOAD", 0), ("a[at / 16 * 8] stride 16", "LOAD", 0),
    ("a[at - at % 8] stride 16", "LOAD", 0), ("a[far * 8i64] stride 16", "LOAD", 0),
    ("a[0] stride n", "if n % 8 == 0 { LOAD }", 1),
    ("a[0] stride n * 8", "LOAD", 1),
    ("a[n * 16] stride n", "if n % 16 == 0 { } LOAD", 1),
    ("a[0] stride n", "if n % 16 != 0 { } else { } LOAD", 1),
    ("a[v] stride 16", "let mut v: int32 = 0; while v < at { LOAD v = v + 8; }", 0),
    ("a[i * 8] stride 16", "for i = 0 to at { LOAD }", 0),
    ("a[v] stride 16", "let mut v: int32 = at * 16; if n < 3 { v = v + 8; } LOAD", 0),
    ("tile[at & 15] stride 16", "LOAD", 0),
]  # fmt: skip


@pytest.mark.parametrize("case", UNPROVED, ids=lambda c: f"{c[0]}, {c[1][:30]}")
def test_needed_checks_are_planted_and_fire(case: tuple[str, str, int]) -> None:
    """The converse: the check is there, and without it the forced one fires for some residue."""
    access, around, which = case
    lowered = _proved((access, around, {}))
    planted = [c for c in _alignment_checks(lowered) if "at least" not in c]
    assert len(planted) == 1
    assert planted[0] in _residues(lowered, lowered.text(), 32)
    assert FORCED[which] in _residues(lowered, _forced(without_traps(lowered.text())), 32)


def test_a_promised_alignment_of_a_parameter() -> None:
    """No test of a base that is promised; the promise is in the text."""
    for align, needed in ((32, False), (64, False), (1024, False), (16, True), (1, True)):
        text = product_with().replace("a: float16[]", f"a: float16[] align {align}")
        lowered = lower(text)
        assert ("'a' is a multiple of 32 bytes" in [p.check for p in lowered.planted]) is needed
        assert (f".align {align} param_a" in lowered.text()) is (align > 1)
    # 16 bytes do not prove 32, and refute an index that is off by 2
    text = product_with("load x (a 16x16x16 f16) from a[INDEX] stride 16 row;").replace(
        "a: float16[]", "a: float16[] align 16")  # fmt: skip
    assert [r.code for r in refusals(text.replace("INDEX", "1"))] == ["R33"]
    assert "'a' + 16 is a multiple of 32 bytes" in [
        p.check for p in lower(text.replace("INDEX", "8")).planted
    ]


def test_shared_arrays_are_aligned_by_their_declaration() -> None:
    """Arrays before them do not move them; no check is made, and none could fire."""
    text = """kernel k(c: float32[] align 32, at: int32) block(32, 1, 1) {
  shared odd: uint8[3];
  shared tile: float32[256];
  shared more: uint8[5];
  shared second: float32[512];
  fragment z: accumulator 16x16x16 f32;
  store z (accumulator 16x16x16 f32) to tile[0] stride 16 row;
  store z (accumulator 16x16x16 f32) to second[(at & 1) * 256] stride 16 row;
  store z (accumulator 16x16x16 f32) to c[0] stride 16 row;
}"""
    lowered = lower(text, bounds=False)
    assert lowered.planted == ()
    assert len([a for a in lowered.accesses if a.proved]) == 3
    for at in range(32):
        assert launch(lowered, {"c": np.ones(256, np.float32), "at": at}).clean
    # the control: the same text with an array that starts elsewhere
    ptx = lowered.text().replace(".align 32 .b32 shared_tile", ".align 4 .b32 shared_tile")
    report = launch(lowered, {"c": np.ones(256, np.float32), "at": 0}, ptx=ptx)
    assert [f.class_ for f in report.findings] == ["wmma-precondition"]


def test_explain_names_every_check() -> None:
    """What is planted and what is proved, each once with its line."""
    lowered = lower(product_with("load x (a 16x16x16 f16) from a[at * 16] stride n row;"))
    text = lowered.explain()
    for p in lowered.planted:
        assert text.count(f": {p.check}\n") == 1
    for access in lowered.accesses:
        for check, reason in access.proved:
            assert (
                f"line {access.statement.line}, {access.statement.name}: {check}: {reason}" in text
            )
    assert "line 8, x: a[at * 16] is at a multiple" not in text.split("proved")[0]


# --- random kernels -------------------------------------------------------------------------------

#: What a launch may report that no check is there for: scalar accesses, races, and endless loops.
OTHERS = {"trap", "step-limit", "uninit-shared", "race-global", "race-shared", "oob-global"}


def _random_launches(seeds: range) -> Counter[str]:
    """What random kernels report, each launched with and without its traps."""
    found: Counter[str] = Counter()
    for seed in seeds:
        made = RandomTiles(seed)
        made.names, made.mutable = ["n", "i", "at", "v0"], ["v0"]
        rng = made.rng
        first = rng.choice(["thread_idx_x", "thread_idx_x / 32", "0", "flags[thread_idx_x]"])
        second = rng.choice(["n", "flags[thread_idx_x]", "flags[0]", "0"])
        body = " ".join(made.statement(0) for _ in range(7))
        text = f"""kernel k(x: int32[], out: int32[], c: int32[], d: int32[], flags: int32[],
          n: int32, at: int32) {{
  shared tile: int32[512]; fragment z: accumulator 16x16x16 s32;
  let i: int32 = {first}; let mut v0: int32 = {second}; {body} }}"""
        block = (32, 1, 1) if rng.random() < 0.6 else None
        if why := refusals(text, block=block):
            assert {r.code for r in why} <= {"R33", "R34", "R35", "R36"}, (text, why)
            found["refused"] += 1
            continue
        lowered = lower(text, block=block)
        for _ in range(3):
            flags = np.array([rng.randrange(-1, 3) for _ in range(64)], np.int32)
            if rng.random() < 0.6:
                flags[:] = rng.randrange(3)
            fixed = {"n": rng.choice([0, 1, 8, 16, 24, 32, 40, -8, 17]),
                     "at": rng.choice([0, 1, 2, 8, 16, 64, 7, -1, 2**31 - 1, 1 << 28])}  # fmt: skip
            for name, ptx in (("", None), ("bare ", without_traps(lowered.text()))):
                arguments = fixed | {
                    "x": np.arange(64, dtype=np.int32) - 3, "out": np.zeros(1024, np.int32),
                    "c": np.zeros(2048, np.int32), "d": np.zeros(1024, np.int32),
                    "flags": flags.copy(),
                }  # fmt: skip
                report = launch(lowered, arguments, ptx=ptx, max_instructions=200_000)
                lines = (lowered.text() if ptx is None else ptx).splitlines()
                for f in report.findings:
                    tile = "wmma" in lines[f.line - 1]
                    found[f"{name}{f.class_}"] += 1
                    if ptx is None:
                        assert f.class_ in OTHERS, (text, fixed, flags, f)
                        assert not (f.class_ == "oob-global" and tile), (text, fixed, flags, f)
                found[f"{name}clean"] += report.clean
    return found


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(20), id="some"),
        pytest.param(range(1000, 1300), marks=pytest.mark.slow, id="many"),
    ],
)
def test_random_launches_are_defined_or_trap(seeds: range) -> None:
    """No launch that passes the tests breaks a rule of wmma; without the tests, many do."""
    found = _random_launches(seeds)
    assert min(found["clean"], found["trap"], found["refused"]) > 0
    assert found["bare wmma-precondition"] > 0
    assert found["bare collective-divergence"] > 0

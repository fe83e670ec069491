"""``ptxsim lower matmul``: its kernels run, its options are checked, its explanations are right."""

from __future__ import annotations

import io
import re
import sys

import pytest

import ptxsim
from lowering.circular import Matmul, lower_matmul
from ptxsim.cli import main

SIZES = ("--m", "40", "--n", "24", "--k", "72")
TILE = ("--tile", "32,32,32")


class Told:
    """What the command wrote and answered; later options overrule earlier ones."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        try:
            self.code = main(["lower", "matmul", *words])
        except SystemExit as stop:
            self.code = int(stop.code or 0)
        self.out, self.err = capsys.readouterr()


# --- kernels that run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--k", "0"),
        ("--k", "7x12", "--tile", "32,32,16"),
        ("--batch", "3", "--peel", "off"),
        ("--symbolic", "m,n,k", "--peel", "aligned"),
        ("--symbolic", "k", "--multiple", "k=8", "--fill", "explicit", "--layout", "nt"),
        ("--dtype", "s8", "--split-k", "2", "--layout", "TT"),
        ("--dtype", "f32", "--stages", "1", "--lda", "80", "--ldb", "28", "--ldc", "25"),
        ("--dtype", "tf32", "--target", "sm_90a", "--ptx", "8.1"),
        ("--target", "sm_75", "--stages", "2", "--warps", "1,2"),
        ("--dtype", "f32", "--target", "sm_70"),
        ("--layout", "NT", "--stages", "6", "--tile", "64,64,64"),  # 98304 bytes
    ],
    ids=" ".join,
)
def test_the_kernel_runs(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(capsys, *SIZES, *TILE, *words)
    assert (told.code, told.err) == (0, "")
    monkeypatch.setattr(sys, "stdin", io.StringIO(told.out))
    assert main(["run", "-"]) == 0
    assert "'matmul' on sm_" in capsys.readouterr().out


def test_header(capsys: pytest.CaptureFixture[str]) -> None:
    """Two tiles of rows, two batches; 48 more bytes a row of a than K = 72 has."""
    told = Told(
        capsys, *SIZES, *TILE, "--batch", "2", "--symbolic", "m,k", "--lda", "96", "--layout", "NT"
    )
    assert told.out.splitlines()[:9] == [
        "// c = a @ b: f16, layout NT, M 40, N 24, K 72",
        "// tile 32x32x32, 3 slots, peel on",
        "// launch: grid=1,2,2 block=32,2,2",
        f"// arg:    a f16[{2 * 40 * 96 - 24}] = randn(1)",
        f"// arg:    b f16[{2 * 24 * 72}] = randn(2)",
        f"// arg:    c f32[{2 * 40 * 24}] = undef",
        "// arg:    M u32 = 40",
        "// arg:    K u32 = 72",
        ".version 8.0",
    ]


def test_header_of_much_shared_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """6 slots of (64 + 64) * 64 f16 are 98304 bytes, beyond what an array may have."""
    told = Told(capsys, *SIZES, "--tile", "64,64,64", "--stages", "6", "--layout", "NT")
    assert "// launch: grid=1,1,1 block=32,2,2 smem=98304\n" in told.out
    assert ".extern .shared" in told.out


def test_the_text_is_that_of_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, *SIZES, *TILE)
    assert told.out == lower_matmul(Matmul(40, 24, 72, (32, 32, 32))).text()
    assert ptxsim.assemble(told.out).diagnostics == ()


# --- explanations ---------------------------------------------------------------------------------


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, *SIZES, *TILE, "--layout", "NT", "--explain")
    assert (told.code, told.err) == (0, "")
    before, after = told.out.split("the loop nest, 3 slots, peel on:\n")
    assert before.startswith("the loop nest, one slot, nothing peeled:\n")
    assert "  shared f16 a_s[32, 32]" in before and "  shared f16 a_s[3, 32, 32]" in after
    assert (
        "timeline of 3 tiles (L load, C commit, W wait, B barrier, M use):\n"
        "  L0r C0; L1 C1; W1[g<1] B\n"
        "  L2 C2 M0 W1[g<2] B\n"
        "  - C3 M1 W1[g<3] B\n"
        "  - C4 M2 W1[g<4] B\n"
    ) in after
    # 2 CTAs of 128 threads and T = 3 tiles: S - 1 + T commits, 1 + T waits and a last one
    rows = {r[0]: r[1:] for r in map(str.split, after.splitlines()[-3:])}
    assert list(rows) == ["off", "on*", "aligned"]
    for row in rows.values():
        assert row[:2] == ["16,", "16"]
        assert row[-4:-1] == [str(256 * 5), str(256 * 5), str(256 * 4)]
        assert row[6] == str(256 * 3 * 2)  # two copies a tile and thread
    assert (rows["off"][2], rows["on*"][2]) == ("256", "256")


def test_explain_says_what_became_narrow(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SIZES, "--k", "70", *TILE, "--layout", "NT", "--lda", "72", "--ldb", "72")
    told = Told(capsys, *words, "--explain")
    assert told.out.endswith(
        "copies of a move 4 bytes and are cp.async: the tiles behind the residue begin at multiples"
        " of no more; --peel aligned moves 16 bytes\n"
        "copies of b move 4 bytes and are cp.async: the tiles behind the residue begin at multiples"
        " of no more; --peel aligned moves 16 bytes\n"
    )
    assert "copies of" not in Told(capsys, *words, "--explain", "--peel", "aligned").out


# rows of a are 72 apart and K is 70, so that r * 2 bytes are 12; b has N contiguous
NARROW = {
    ("--fill", "explicit", "--peel", "aligned"): (
        "move 4 bytes and are cp.async: stores of zeros cannot complete a vector at the end; "
        "--fill zfill moves 16 bytes"
    ),
    ("--fill", "explicit"): (
        "move 4 bytes and are cp.async: neither stores of zeros nor the tiles behind the residue "
        "allow more; --fill zfill --peel aligned moves 16 bytes"
    ),
    ("--peel", "off", "--lda", "70"): (
        "move 4 bytes and are cp.async: no more is known to divide the distance of its rows or the "
        "tile"
    ),
}


@pytest.mark.parametrize("words", NARROW, ids=" ".join)
def test_each_cause_of_narrow_copies(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys, *SIZES, "--k", "70", *TILE, "--lda", "72", *words, "--explain")
    assert told.out.splitlines()[-1] == f"copies of a {NARROW[words]}"


def test_elements_that_are_apart_are_loaded_one_by_one() -> None:
    spec = Matmul(40, 24, 72, (32, 32, 32), strides={"a": (144, 2)})
    note = "copies of a move 2 bytes and are loads and stores: its elements are apart\n"
    assert lower_matmul(spec).explain().endswith(note)


def test_explain_of_an_unpeeled_long_loop(capsys: pytest.CaptureFixture[str]) -> None:
    """No tile is marked as a residue, and the middle is left out."""
    told = Told(capsys, *SIZES, *TILE, "--k", "32000", "--peel", "off", "--explain")
    lines = told.out.split("timeline of 1000 tiles")[1].splitlines()
    assert lines[1] == "  L0 C0; L1 C1; W1[g<1] B"
    assert lines[6:8] == ["  ...", "  L998 C998 M996 W1[g<998] B"]
    assert lines[10] == "  - C1001 M999 W1[g<1001] B"


@pytest.mark.parametrize("words", [("--target", "sm_75"), ("--stages", "1")])
def test_without_a_pipeline_there_is_no_timeline(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys, *SIZES, *TILE, *words, "--explain")
    assert told.code == 0 and "timeline" not in told.out


# --- refusals -------------------------------------------------------------------------------------

REFUSED = {
    ("--dtype", "f64"): "--dtype: no 'f64'",
    ("--layout", "XY"): "layout 'XY' is none of NN, NT, TN, TT",
    ("--layout", ""): "layout '' is none of",
    ("--peel", "maybe"): "--peel: no 'maybe'; there are: on, off, aligned",
    ("--fill", "none"): "--fill: no 'none'; there are: zfill, explicit",
    ("--target", "sm_99"): "--target: no 'sm_99'",
    ("--target", "sm_70"): "sm_70 has no mma of f16 that is lowered to",
    ("--target", "sm_75", "--dtype", "bf16"): "sm_75 has no mma of bf16",
    ("--ptx", "6.0"): "the kernel needs PTX ISA 7.0 on sm_80, not 6.0",
    ("--ptx", "99.9"): "PTX ISA version 99.9 does not exist",
    ("--ptx", "eight"): "--ptx eight: a version such as 8.0 is needed",
    ("--m", "0"): "M, N and a batch are at least 1",
    ("--n", "-3"): "M, N and a batch are at least 1",
    ("--batch", "0"): "M, N and a batch are at least 1",
    ("--m", "x"): "argument --m: invalid int value: 'x'",
    ("--m", "99999999999"): "sizes and strides are below 2^31 elements",
    ("--k", "99999999999"): "sizes and strides are below 2^31 elements",
    ("--k", "65536x65536"): "sizes and strides are below 2^31 elements",
    ("--lda", "4294967296"): "sizes and strides are below 2^31 elements",
    ("--k", "-5"): "--k",
    ("--k", "5x"): "--k 5x: 1 or 2 numbers with 'x' between are needed",
    ("--k", "2x3x4"): "--k 2x3x4: 1 or 2 numbers",
    ("--k", "٣"): "1 or 2 numbers",
    ("--m", "2000000000"): "62500000 CTAs along y; a grid has at most 65535 there",
    ("--batch", "70000"): "70000 CTAs along z; a grid has at most 65535 there",
    ("--lda", "5"): "rows of a have 72 elements, not 5",
    ("--ldc", "-1"): "rows of c have 24 elements, not -1",
    ("--tile", "32,32"): "--tile 32,32: 3 numbers with ',' between are needed",
    ("--tile", "0,0,0"): "tiles and warps are positive",
    ("--tile", "100,100,10"): "a tile of 100x100x10 is not made of 32x16x16",
    ("--tile", "1024,1024,1024"): "8192 sums for each of 128 threads, which have 255 registers",
    ("--tile", "128,128,256"): "take 393216 bytes of shared memory; a CTA of sm_80 has at most 166",
    ("--tile", "128,64,64", "--stages", "6", "--target", "sm_89"): "sm_89 has at most 101376",
    ("--tile", "999999999,16,16"): "a tile of 999999999x16x16",
    ("--warps", "99,99"): "tiles and warps are positive, with 1024 threads at most",
    ("--warps", "2"): "--warps 2: 2 numbers",
    ("--stages", "0"): "0 stages; a circular buffer has 1 to 6",
    ("--stages", "7"): "7 stages; a circular buffer has 1 to 6",
    ("--split-k", "0"): "split_k is at least 1",
    ("--split-k", "2", "--k", "5x6"): "1 where K is merged of two axes",
    ("--split-k", "2", "--k", "0"): "K = 0 has no parts",
    ("--split-k", "2", "--symbolic", "k", "--k", "0"): "K = 0 has no parts",
    ("--split-k", "2", "--batch", "2"): "batches and parts of K are both CTAs along z",
    ("--symbolic", "z"): "--symbolic z: letters of m, n and k are needed",
    ("--symbolic", "k", "--k", "5x6"): "K that is merged of two axes cannot be symbolic",
    ("--multiple", "k=16"): "k = 72 is no multiple of 16",
    ("--multiple", "k=0"): "--multiple k=0: a size and a number such as k=8 are needed",
    ("--multiple", "q=8"): "--multiple q=8: a size and a number",
    ("--bounds",): "unrecognized arguments: --bounds",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one line (behind the usage, where an option is not one) and no kernel."""
    told = Told(capsys, *SIZES, *TILE, *words)
    assert (told.code, told.out) == (2, "")
    lines = [line for line in told.err.splitlines() if line.startswith("ptxsim")]
    assert len(lines) == 1 and REFUSED[words] in lines[0]
    assert "usage:" in told.err or told.err == f"{lines[0]}\n"
    assert not re.search(r"Traceback|Error\b", told.err)


@pytest.mark.parametrize("missing", ["--m", "--n", "--k"])
def test_a_size_is_missing(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = SIZES.index(missing)
    told = Told(capsys, *SIZES[:at], *SIZES[at + 2 :])
    assert told.code == 2 and f"required: {missing}" in told.err

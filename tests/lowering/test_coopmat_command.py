"""The command ``ptxsim lower coopmat``: what it prints and refuses; the example of its texts."""

from __future__ import annotations

import io
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from test_coopmat_golden import CASES, KEPT, file, home
from test_copy_golden import GOLDEN

import ptxsim
from lowering.coopmat import lower_coopmat, parse
from ptxsim.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"

SMALL = """kernel small(a: int8[], b: int8[], d: int32[], n: int32) block(32, 1, 1) {
  fragment x: a 16x16x16 s8;
  fragment y: b 16x16x16 s8;
  fragment z: accumulator 16x16x16 s32;
  load x (a 16x16x16 s8) from a[0] stride n row;
  load y (b 16x16x16 s8) from b[0] stride 16 col;
  z = muladd x, y, z (16x16x16 s8*s8+s32->s32);
  store z (accumulator 16x16x16 s32) to d[0] stride 16 row;
}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path, SMALL)


def write(folder: Path, text: str) -> Path:
    path = folder / "kernel.coop"
    path.write_text(text)
    return path


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


class Told:
    """What a command answered."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str | Path) -> None:
        self.code = main(["lower", "coopmat", *map(str, words)])
        self.out, self.err = capsys.readouterr()


# --- the kernel -----------------------------------------------------------------------------------


def options(name: str, via: str) -> list[str]:
    """The options of the command for a golden kernel."""
    words = ["--target", home(name, via), "--via", via]
    given = CASES[name].options
    if "block" in given:
        words += ["--block", ",".join(map(str, given["block"]))]
    if "version" in given:
        words += ["--ptx", ".".join(map(str, given["version"]))]
    if "rule" in given:
        words += ["--rule", given["rule"]]
    return words


COMMANDS = [x for x in KEPT if "faithful" not in CASES[x[0]].options]


@pytest.mark.parametrize(("name", "via"), COMMANDS)
def test_kernel_is_the_golden_one(
    name: str, via: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys, write(tmp_path, CASES[name].text), *options(name, via))
    assert (told.code, told.err) == (0, "")
    assert told.out == (GOLDEN / f"{file(name, via)}.ptx").read_text()


def test_faithful(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The seed's rule without a test of bounds; what it does not lower is refused."""
    seed = write(tmp_path, CASES["u8_faithful"].text)
    told = Told(capsys, seed, "--faithful")
    assert (told.code, told.err) == (0, "")
    assert told.out == lower_coopmat(parse(seed.read_text()), faithful=True).text()
    assert told.out == (GOLDEN / "coopmat_u8_cuda.ptx").read_text()
    told = Told(capsys, write(tmp_path, CASES["b1_xor"].text), "--faithful")
    assert told.code == 1 and told.out == ""
    assert f"{seed}:3: refused: R3: fragment 'x' (a 8x8x128 b1 subgroup)" in told.err


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, CASES["b1_xor"].text)
    told = Told(capsys, "-")
    assert (told.code, told.err) == (0, "")
    assert told.out == (GOLDEN / "coopmat_b1_xor.ptx").read_text()


def test_defaults(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """sm_80, version 8.0, wmma and the rule of the PTX ISA."""
    told = Told(capsys, small)
    assert told.out == Told(
        capsys, small, "--target", "sm_80", "--ptx", "8.0", "--via", "wmma", "--rule", "ptx",
        "--block", "32",
    ).out  # fmt: skip
    assert ".version 8.0\n.target sm_80\n" in told.out
    assert told.out.startswith("// small: cooperative matrices by wmma, rule ptx\n")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--target", "sm_90a"], ".version 8.0\n.target sm_90a\n"),
        (["--target", "sm_120"], ".version 8.7\n.target sm_120\n"),
        (["--ptx", "7.0"], ".version 7.0\n.target sm_80\n"),
        (["--target", "sm_72", "--ptx", "6.3"], ".version 6.3\n.target sm_72\n"),
        (["--via", "mma"], "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32"),
        (["--rule", "cuda"], "// trap unless 'a' is a multiple of 32 bytes\n"),
        (["--rule", "ptx"], "// trap unless 'a' is a multiple of 8 bytes\n"),
        (["--block", "32"], ".reqntid 32, 1, 1\n"),
    ],
)
def test_options_reach_the_kernel(
    words: list[str], part: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys, small, *words)
    assert (told.code, told.err) == (0, "") and part in told.out
    assert ptxsim.assemble(told.out).diagnostics == ()


@pytest.mark.parametrize("shape", ["64", "8,8", "4,4,4"])
def test_block_of_a_kernel_that_says_none(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, SMALL.replace(" block(32, 1, 1)", ""))
    assert ".reqntid" not in Told(capsys, path).out
    full = ", ".join([*shape.split(","), "1", "1"][:3])
    assert f".reqntid {full}\n" in Told(capsys, path, "--block", shape).out


def test_another_block_than_the_kernel_says(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel was written for its block; another one would change what it computes."""
    told = Told(capsys, small, "--block", "64")
    assert told.code in (1, 2) and told.out == ""
    assert "64" in told.err and "32" in told.err


EXPLAINED = """\
small: wmma for sm_80, rule ptx

tested at run time, with a trap:
  at the entry: 'a' is a multiple of 8 bytes
  at the entry: stride n is a multiple of 8 elements
  at the entry: stride n is at least 16
  at the entry: 16 x 16 elements from 0, stride n, lie in 'a'
  at the entry: 'b' is a multiple of 8 bytes
  at the entry: 16 x 16 elements from 0, stride 16, lie in 'b'
  at the entry: 'd' is a multiple of 32 bytes
  at the entry: 16 x 16 elements from 0, stride 16, lie in 'd'

proved, not tested:
  line 5, x: n is the same in all lanes: nothing in n depends on the lane
  line 6, y: stride 16 is a multiple of 8 elements: 16 is a multiple of 8
  line 6, y: stride 16 is at least 16: 16 is at least 16
  line 8, z: stride 16 is a multiple of 8 elements: 16 is a multiple of 8
  line 8, z: stride 16 is at least 16: 16 is at least 16
"""


def test_explain(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, small, "--explain")
    assert (told.code, told.out, told.err) == (0, EXPLAINED, "")


def test_explain_lists_the_tests_of_the_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many as traps stand in the PTX, and in the same order where none is moved."""
    path = write(tmp_path, CASES["u8_branch"].text)
    kernel, told = Told(capsys, path), Told(capsys, path, "--explain")
    tests = re.findall(r"// trap unless (.*)", kernel.out)
    listed = told.out.split("proved")[0].splitlines()[3:-1]
    assert sorted(line.split(": ", 1)[1] for line in listed) == sorted(tests) != []


# --- into the simulator ---------------------------------------------------------------------------

ARGS = [
    "--grid", "1", "--block", "32", "--arg", "param_a=s8[256]:iota", "--arg", "length_a=u32:256",
    "--arg", "param_b=s8[256]:ones", "--arg", "length_b=u32:256", "--arg", "param_d=s32[256]:zeros",
    "--arg", "length_d=u32:256",
]  # fmt: skip


@pytest.mark.parametrize("via", ["wmma", "mma"])
def test_output_is_run(
    via: str,
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given(monkeypatch, Told(capsys, small, "--via", via).out)
    out = tmp_path / "d.npy"
    code = main(["run", "-", *ARGS, "--arg", "param_n=s32:16", "--out", f"param_d={out}"])
    said = capsys.readouterr().out
    assert code == 0 and "clean" in said
    a = np.arange(256).astype(np.uint8).view(np.int8).reshape(16, 16).astype(np.int32)
    assert np.array_equal(np.load(out).reshape(16, 16), np.repeat(a.sum(1)[:, None], 16, axis=1))


@pytest.mark.parametrize("n", [8, 17, 24])
def test_output_traps(
    n: int, small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Strides shorter than a line, not aligned, and beyond the end of the buffer."""
    given(monkeypatch, Told(capsys, small).out)
    assert main(["run", "-", *ARGS, "--arg", f"param_n=s32:{n}"]) == 1
    assert "trap" in capsys.readouterr().out


# --- refusals -------------------------------------------------------------------------------------

WRONG = """kernel wrong(a: int8[], d: int32[]) block(40, 1, 1) {
  fragment x: a 16x16x16 s8;
  fragment y: b 16x16x16 u8;
  fragment z: accumulator 16x16x16 s32;
  fragment w: a 16x16x16 f32 device;
  load x (a 16x16x16 s8) from a[1] stride 16 row;
  load y (b 16x16x16 u8) from b[0] stride 16 col;
  z = muladd x, y, z (16x16x16 s8*u8+s32->s32);
  store z (accumulator 16x16x16 s32) to d[0] stride 12 row;
}
"""


def test_all_refusals_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, WRONG)
    told = Told(capsys, path)
    assert (told.code, told.out) == (1, "")
    found = re.findall(r"^(.*):(\d+): refused: (R\d+): .+$", told.err, re.MULTILINE)
    assert len(found) == len(told.err.splitlines())
    assert {p for p, _, _ in found} == {str(path)}
    assert [(int(line), code) for _, line, code in found] == [
        (1, "R16"), (5, "R1"), (5, "R3"), (7, "R21"), (8, "R6"), (9, "R34"), (9, "R34"),
    ]  # fmt: skip


def test_refusals_of_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SMALL.replace("b[0] stride 16", "b[0] stride 12").replace("to d[0]", "to d[1 - 2]")
    path = write(tmp_path, text)
    told = Told(capsys, path)
    assert (told.code, told.out) == (1, "")
    assert told.err.splitlines() == [
        f"{path}:6: refused: R34: stride 12: is no multiple of 8 elements (8 bytes)",
        f"{path}:6: refused: R34: stride 12: is less than a line of 16 elements",
        f"{path}:8: refused: R33: index 1 - 2: is negative",
    ]


def test_refusals_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, SMALL)
    told = Told(capsys, "-", "--target", "sm_70")
    assert (told.code, told.out) == (1, "")
    assert told.err == "<stdin>:1: refused: R13: target sm_70: factors of 8 bits need sm_72\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--target", "sm_61"], "R12"),
        (["--target", "sm_9"], "R11"),
        (["--target", "80"], "R11"),
        (["--target", "sm_75", "--via", "mma"], "R31"),
        (["--target", "sm_120", "--ptx", "8.0"], "R31"),
        (["--ptx", "6.0", "--target", "sm_72"], "R31"),
        (["--ptx", "99.9"], "R31"),
        (["--block", "33"], "R16"),
        (["--block", "0"], "R16"),
        (["--block", "2048"], "R16"),
        (["--block", "999999,999999,999999"], "R16"),
    ],
)
def test_refused_options(
    words: list[str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, SMALL.replace(" block(32, 1, 1)", ""))
    told = Told(capsys, path, *words)
    assert (told.code, told.out) == (1, "")
    for line in told.err.splitlines():
        assert re.match(re.escape(str(path)) + rf":\d+: refused: {code}: ", line), line
    assert "saturating" not in told.err


@pytest.mark.parametrize("shape", ["0", "2048", "99999,99999,99999"])
def test_blocks_that_there_are_not(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without cooperative matrices too; 33 threads are legal then."""
    path = write(tmp_path, "kernel k(d: int32[]) { d[thread_idx_x] = 1; }")
    told = Told(capsys, path, "--block", shape)
    assert told.out == "" and told.code in (1, 2) and told.err
    assert ".reqntid 33, 1, 1\n" in Told(capsys, path, "--block", "33").out


# --- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--via", "wgmma"], "no instructions 'wgmma'; there are: wmma, mma"),
        (["--rule", "cxx"], "no rule 'cxx'; there are: ptx, cuda"),
        (["--ptx", "8"], "--ptx 8: a version such as 8.0 is needed"),
        (["--ptx", "8.x"], "--ptx 8.x: a version such as 8.0 is needed"),
        (["--ptx", "٨.٠"], "a version such as 8.0 is needed"),
        (["--block", "32,"], "--block 32,: one to three numbers such as 32,4 are needed"),
        (["--block", "1,2,3,4"], "one to three numbers"),
        (["--block=-32"], "one to three numbers"),
        (["--block", "９"], "one to three numbers"),
        (["--bounds"], "unrecognized arguments: --bounds"),
        (["more.coop"], "unrecognized arguments: more.coop"),
    ],
)
def test_usage(
    words: list[str], message: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys, small, *words)
    assert (told.code, told.out) == (2, "") and message in told.err


@pytest.mark.parametrize("words", [[], ["--via", "mma"]])
def test_no_file_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, *words)
    assert (told.code, told.out) == (2, "") and "required: FILE" in told.err


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)))
    for path, reason in (
        (tmp_path / "none.coop", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (binary, "not UTF-8 text (byte 128)"),
    ):
        told = Told(capsys, path)
        assert (told.code, told.out) == (2, "")
        assert told.err == f"ptxsim: cannot read {path}: {reason}\n"


# --- texts that are no kernels --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("kernel k() {\n  let x: int32 = ;\n}\n", "2:18", "';' is not expected here"),
        ("kernel k() {\n  let x: word = 1;\n}\n", "2:10", "no type 'word'; known: int32"),
        ("kernel k(a: half[]) { }\n", "1:13", "no element type 'half'; known: int32"),
        ("\n\nkernel k() { @ }\n", "3:14", "'@' is not expected here"),
        ("kernel k() { } kernel l() { }\n", "1:16", "'kernel' is not expected here"),
        ("", "1:1", "the text ends too early"),
        (".version 8.0\n.target sm_80\n", "1:1", "'.version' is not expected here"),
    ],
)
def test_text_errors(
    text: str, place: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, text)
    told = Told(capsys, path)
    assert (told.code, told.out) == (3, "")
    assert told.err.startswith(f"{path}:{place}: error: {message}")
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize("text", ["kernel k() {", "kernel k(", "kernel", "# nothing\n", "\n\n"])
def test_texts_that_end_too_early(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys, write(tmp_path, text))
    assert (told.code, told.out) == (3, "")
    assert told.err.endswith(": error: the text ends too early\n")


def test_a_text_of_two_mebibytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "# a\n" * (1 << 19))
    told = Told(capsys, path)
    assert (told.code, told.out) == (3, "")
    assert told.err == (
        f"{path}:1:1: error: the text has 2097152 characters, at most 1048576 are read\n"
    )


BODY = "kernel k(d: int32[]) block(32, 1, 1) {{ {} }}"
DEEP = {
    "blocks": ("{{", "", "}}"), "ifs": ("if d[0] > 0 {{", "", "}}"),
    "loops": ("for i = 0 to 3 {{", "", "}}"),
    "parentheses": ("(", "1", ")"), "elements": ("d[", "0", "]"), "casts": ("int32(", "1", ")"),
    "signs": ("-", "1", ""), "nots": ("~", "1", ""), "sums": ("1 + ", "1", ""),
    "elements in a row": ("d[0] * ", "1", ""),
}  # fmt: skip


@pytest.mark.parametrize("count", [20, 300, 3000])
@pytest.mark.parametrize("kind", DEEP)
def test_deep_nesting(
    kind: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lowered, or refused with a place: there is no depth that ends in anything else."""
    opened, inner, closed = (x.replace("{{", "{").replace("}}", "}") for x in DEEP[kind])
    text = opened * count + inner + closed * count
    if inner:
        text = f"d[0] = {text};"
    path = write(tmp_path, BODY.format(text))
    told = Told(capsys, path)
    if count == 20:
        assert (told.code, told.err) == (0, "")
        return
    assert told.out == "" and told.code in (1, 3)
    assert re.match(re.escape(str(path)) + r":1:(\d+: error| refused: R28): .*deeper", told.err)


@pytest.mark.parametrize(
    "text",
    [
        BODY.format("let x: int32 = {n};"),
        BODY.format("let x: int64 = {n}i64;"),
        BODY.format("fragment x: a {n}x16x16 f16;"),
        BODY.format("barrier;").replace("(32,", "({n},"),
        BODY.format("shared s: int32[{n}];"),
        "kernel k(d: int32[] align {n}) { }",
    ],
)
def test_numbers_of_many_digits(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for digits in (20, 5000):
        told = Told(capsys, write(tmp_path, text.replace("{n}", "9" * digits)))
        assert told.out == "" and told.code in (1, 3) and len(told.err.splitlines()) >= 1


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys, write(tmp_path, "kernel k() { \x1b[31m }"))
    assert (told.code, told.out) == (3, "") and "\x1b" not in told.err


# --- the example ----------------------------------------------------------------------------------


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: the addresses of three buffers, and that four tiles loaded and four stored lie in
    them, are tested; of each of the eight, that the stride is a multiple and covers a line, and
    that the index is the same in all lanes and not negative, are proved."""
    module = runpy.run_path(str(EXAMPLES / "coopmat_gemm.py"))
    module["main"]()
    assert capsys.readouterr().out.splitlines() == [
        line
        for name in ("gemm_f16", "gemm_s8")
        for line in (
            f"{name} by wmma: 11 tests at run time, 32 proved needless",
            f"{name} by mma: 11 tests at run time, 32 proved needless",
            f"{name}: both agree with each other and with the oracle",
        )
    ]


@pytest.mark.parametrize("via", ["wmma", "mma"])
@pytest.mark.parametrize("name", ["f16", "s8"])
def test_texts_of_the_example(name: str, via: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / f"coopmat_gemm_{name}.coop"
    told = Told(capsys, path, "--target", "sm_90", "--via", via)
    assert (told.code, told.err) == (0, "")
    kernel = parse(path.read_text())
    assert told.out == lower_coopmat(kernel, target="sm_90", via=via).text()
    assert ptxsim.assemble(told.out).diagnostics == ()


def test_every_text_of_the_examples_is_lowered(capsys: pytest.CaptureFixture[str]) -> None:
    names = {p.name for p in EXAMPLES.glob("*.coop")}
    assert names == {"coopmat_gemm_f16.coop", "coopmat_gemm_s8.coop"}

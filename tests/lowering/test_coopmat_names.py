"""Names, limits and constants of cooperative kernels: refused, or written as they are read."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import At, launch, lower, refusals

import ptxsim
from lowering.coopmat.builder import KernelBuilder
from lowering.coopmat.ir import INTRINSICS, Const, Constant, Let
from lowering.coopmat.refusals import Refused
from lowering.coopmat.text import KEYWORDS, TextError, parse, to_text


def _codes(text: Any, **options: Any) -> list[str]:
    return [f"{r.code}@{r.line}" for r in refusals(text, **options)]


# --- names ----------------------------------------------------------------------------------------

#: Kernels with NAME for each thing that has a name, in the places where a text could misread it.
NAMED = {
    "buffer": """kernel k(NAME: int32[], n: int32) {
  let mut q: int32 = NAME[0] + length(NAME) - NAME[NAME[1]];
  if n < 3 {
    NAME[0] = 1;
  }
  NAME[1] = 2;
}
""",
    "variable": """kernel k(w: int32[], n: int32) {
  let mut NAME: int32 = n;
  if n < NAME {
    NAME = -NAME;
  }
  NAME = w[NAME] + NAME;
  while n < NAME {
    NAME = NAME - 1;
  }
  w[0] = NAME;
}
""",
    "counter": """kernel k(w: int32[], n: int32) {
  for NAME = n to n {
    w[NAME] = NAME;
  }
}
""",
    "factor": """kernel k(w: float16[]) {
  fragment NAME: a 16x16x16 f16;
  fragment y: b 16x16x16 f16;
  fragment z: accumulator 16x16x16 f32;
  load NAME (a 16x16x16 f16) from w[0] stride 16 row;
  load y (b 16x16x16 f16) from w[0] stride 16 row;
  z = muladd NAME, y, z (16x16x16 f16*f16+f32->f32);
}
""",
    "sum": """kernel k(w: float32[], n: int32) {
  fragment NAME: accumulator 16x16x16 f32;
  if n < 3 {
    load NAME (accumulator 16x16x16 f32) from w[0] stride 16 row;
  }
  store NAME (accumulator 16x16x16 f32) to w[256] stride 16 row;
}
""",
    "kernel": "kernel NAME(w: int32[]) {\n  w[0] = 1;\n}\n",
    "shared": "kernel k() {\n  shared NAME: int32[8];\n  NAME[0] = NAME[1];\n}\n",
    "local": "kernel k() {\n  local NAME: int32[8];\n  NAME[0] = NAME[1];\n}\n",
    "constant": "kernel k() {\n  constant NAME: int32[] = {1};\n  let v: int32 = NAME[0];\n}\n",
}
#: Every word of the text form, of PTX, and names with what a name may have.
WORDS = sorted({
    *KEYWORDS, *INTRINSICS, "kernel", "mut", "to", "from", "stride", "row", "col", "block", "align",
    "warp", "a", "b", "accumulator", "subgroup", "workgroup", "device", "f16", "s8", "u4", "b1",
    "int32", "int64", "float16", "bool", "uint8", "bit", "saturating", "rn", "xor", "and", "or",
    "not", "i64", "f32", "x", "x16", "inf", "nan", "WARP_SZ", "reg", "mov", "trap", "ret", "tid",
    "_a", "__", "A9_", "e5", "k", "laneid", "shared_t", "param_w", "length_w", "loop_1",
})  # fmt: skip


#: What has its name in the PTX; variables and fragments are registers with numbers.
PTX_NAMES = ("buffer", "kernel", "shared", "local", "constant")


def _renamed(thing: Any, name: str) -> Any:
    """The same part of a kernel, with the name instead of ``NAME``."""
    if isinstance(thing, tuple):
        return tuple(_renamed(x, name) for x in thing)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        parts = {f.name: _renamed(getattr(thing, f.name), name) for f in dataclasses.fields(thing)}
        return replace(thing, **parts)
    return name if thing == "NAME" else thing


@pytest.mark.parametrize("kind", NAMED)
def test_what_has_a_name_is_read_back(kind: str) -> None:
    """A name is refused, or the text of the kernel says what the kernel is, and PTX takes it."""
    refused = set()
    for word in WORDS:
        kernel = _renamed(parse(NAMED[kind]), word)
        try:
            text = lower(kernel).text()
        except Refused as why:
            assert {r.code for r in why.refusals} == {"R28"}
            assert f"'{word}'" in {r.what.removeprefix("kernel ") for r in why.refusals}
            refused.add(word)
            continue
        assert parse(to_text(kernel)) == kernel, word
        assert parse(_header(text)) == kernel, word
        if kind in PTX_NAMES:
            assert ptxsim.assemble(text).diagnostics == (), word
    expected = {*KEYWORDS, *INTRINSICS}
    if kind == "kernel":
        expected = {"WARP_SZ", "true", "false"}
    assert refused == expected


def _header(text: str) -> str:
    """The kernel in the comment at the head of its PTX."""
    lines = [t for t in text.splitlines() if t.startswith("//")]
    start = next(k for k, t in enumerate(lines) if t.startswith("// kernel "))
    return "\n".join(t.removeprefix("//").removeprefix(" ") for t in lines[start:])


def test_words_that_a_text_cannot_name() -> None:
    """The controls: each keyword is needed, as some kernel with it is not read back."""
    for word in KEYWORDS:
        wrong = 0
        for text in NAMED.values():
            kernel = _renamed(parse(text), word)
            try:
                wrong += parse(to_text(kernel)) != kernel
            except TextError:
                wrong += 1
        assert wrong, word


@pytest.mark.parametrize("word", ["if", "else", "thread_idx_x", "fine"])
def test_names_of_the_builder(word: str) -> None:
    """What the builder takes is refused or read back, too."""
    k = KernelBuilder("k")
    w = k.buffer("w", "int32")
    v = k.let(word, "int32", w[0], mutable=True)
    with k.when(v < 3):
        w[0] = 1
    k.assign(v, v + 1)
    kernel = k.kernel()
    assert _codes(kernel) == ([] if word == "fine" else ["R28@0"])
    if word == "fine":
        assert parse(to_text(kernel)) == kernel


@pytest.mark.parametrize("space", ["shared", "constant"])
def test_a_kernel_with_the_name_of_an_array(space: str) -> None:
    array = {"shared": "shared t: int32[4];", "constant": "constant t: int32[] = {1};"}[space]
    text = f"kernel NAME(w: int32[]) {{ {array} w[0] = t[0]; }}"
    (found,) = refusals(text.replace("NAME", f"{space}_t"))
    assert (found.code, found.what) == ("R28", f"kernel '{space}_t'")
    for name in ("local_t", f"{space}_u", "param_w", "length_w"):
        assert ptxsim.assemble(lower(text.replace("NAME", name)).text()).diagnostics == ()


# --- limits and constants -------------------------------------------------------------------------


def _parameters(buffers: int, scalars: str) -> str:
    params = [f"p{k}: int32[]" for k in range(buffers)] + [f"s: {scalars}"]
    return f"kernel k({', '.join(params)}) {{ p0[0] = 1; }}"


@pytest.mark.parametrize(
    ("buffers", "scalar", "version", "code"),
    [
        # 12 bytes a buffer: 4344 + 8 and 4356 of 4352
        (362, "int64", (8, 0), []), (362, "int32", (8, 0), []), (363, "int32", (8, 0), ["R37@0"]),
        (363, "int32", (8, 1), []), (2730, "int32", (8, 1), []), (2730, "int32", (8, 0), ["R37@0"]),
        # 32760 + 4 and 32760 + 8 of 32764
        (2730, "int64", (8, 1), ["R37@0"]),
    ],
)  # fmt: skip
def test_bytes_of_parameters(
    buffers: int, scalar: str, version: tuple[int, int], code: list[str]
) -> None:
    """PTX ISA, "Kernel Function Parameters": 4352 bytes, 32764 from PTX ISA 8.1 on."""
    assert _codes(_parameters(buffers, scalar), version=version) == code


LARGE = "1" + "0" * 39 + ".0"


def test_constants_too_large_for_their_type() -> None:
    """float32 becomes infinite, alone and in an array; what no float64 holds is refused."""
    text = f"""kernel k(w: float32[]) {{
  constant t: float32[] = {{{LARGE}, -{LARGE}, 1.0}};
  w[0] = t[0]; w[1] = t[1]; w[2] = t[2]; w[3] = {LARGE}; w[4] = -{LARGE}; w[5] = float32({LARGE});
}}"""
    w = np.zeros(8, np.float32)
    assert launch(lower(text), {"w": w}, block=1).clean
    assert w[:6].tolist() == [np.inf, -np.inf, 1.0, np.inf, -np.inf, np.inf]
    huge = 10**400
    kernel = parse(text)
    for type_ in ("float32", "float64"):
        for value in (huge, -huge):
            array = Constant("u", type_, (value,))
            (found,) = refusals(replace(kernel, arrays=(*kernel.arrays, array)))
            assert (found.code, found.what, found.line) == ("R28", "'u'", 0)
            assert found.reason.endswith(f" is no {type_}") and len(found.reason) < 50
            let = Let("v", type_, Const(value, type_))
            body = replace(kernel.body, statements=(*kernel.body.statements, let))
            (found,) = refusals(replace(kernel, body=body))
            assert found.code == "R28" and "does not fit into" in found.reason
            assert len(found.what) < 50
    largest = int(np.finfo(np.float64).max)
    let = Let("v", "float64", Const(largest, "float64"))
    assert refusals(replace(kernel, body=replace(kernel.body, statements=(let,)))) == ()


@pytest.mark.parametrize("text", ["1.5i64", "0.0i64", "2.0i64"])
def test_an_int64_with_a_point(text: str) -> None:
    with pytest.raises(TextError, match=f"'{text}' is no int64"):
        parse(f"kernel k(w: int64[]) {{ w[0] = {text}; }}")
    parse(f"kernel k(w: int64[]) {{ w[0] = {text.split('.')[0]}i64; }}")


@pytest.mark.parametrize(
    ("index", "offset"),
    [
        ("2i64", 8), ("9223372036854775807i64", -4), ("4611686018427387905i64", 4),
        ("-1i64", -4), ("-9223372036854775807i64", 4),
        ("9223372036854775807i64 + 2i64 + 9223372036854775807i64", 0),
    ],
)  # fmt: skip
def test_constant_offsets_wrap(index: str, offset: int) -> None:
    """In 64 bits, as the same index does that is no constant."""
    text = f"kernel k(back: int32[], w: int32[], one: int64) {{ w[{index}] = 7; }}"
    lines = [t.strip() for t in lower(text).text().splitlines()]
    added = [t for t in lines if t.startswith("add.s64")]
    assert [int(t.rstrip(";").split(", ")[-1]) for t in added] == ([offset] if offset else [])
    for written in (text, text.replace("i64", "i64 * one", 1)):
        back = np.zeros(16, np.int32)
        report = launch(lower(written), {"back": back, "w": At(16, 4), "one": 1}, block=1)
        if "+" not in index or written is text:
            assert report.clean and np.flatnonzero(back).tolist() == [4 + offset // 4]

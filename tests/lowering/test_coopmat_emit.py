"""The text that cooperative matrices become: spellings, registers, frame, and each form of wmma."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import agree, launch, lower
from kernel_judge import judged

from lowering.coopmat.forms import SHAPES, check_config, check_fragment, elt_of, floor, ptx_type
from lowering.coopmat.vocabulary import (
    COMPONENTS,
    LAYOUTS,
    MODIFIERS,
    Config,
    Fragment,
    Shape,
)
from lowering.coopmat.wmma import Wmma, frag_reg_count
from tests.isa.mma_rows import Row, rows

CUBE = Shape(16, 16, 16)
_ELEMENTS = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "f64": "float64",
    "u8": "uint8", "s8": "int8", "u4": "uint4", "s4": "int4", "b1": "bit", "u32": "int32",
    "s32": "int32",
}  # fmt: skip


def _text(config: Config, *pairs: tuple[str, str], spaces: tuple[str, ...] = ("global",)) -> str:
    """A kernel that loads each operand from each space in the layouts of each pair, multiplies, and
    stores to each space."""
    a, b, c, d = config.fragments()
    step = max(32, config.shape.k)  # elements between lines: aligned and long enough for all
    lines = []
    for number, (name, f) in enumerate((("x", a), ("y", b))):
        for layout in dict.fromkeys(pair[number] for pair in pairs):
            lines.append(f"fragment {name}_{layout}: {f};")
            lines += [
                f"load {name}_{layout} ({f}) from {s}_{f.use}[0] stride {step} {layout};"
                for s in spaces
            ]
    lines += [f"fragment z: {c};", f"fragment r: {d};"]
    lines += [
        f"load z ({c}) from {s}_c[0] stride {step} {layout};" for s in spaces for layout in LAYOUTS
    ]
    lines += [f"r = muladd x_{row}, y_{col}, z ({config});" for row, col in pairs]
    lines += [
        f"store r ({d}) to {s}_d[0] stride {step} {layout};" for s in spaces for layout in LAYOUTS
    ]
    kinds = [_ELEMENTS[f.component] for f in (a, b, c, d)]
    params = ", ".join(f"global_{n}: {t}[]" for n, t in zip("abcd", kinds, strict=True))
    bits = {n: COMPONENTS[f.component][0] for n, f in zip("abcd", (a, b, c, d), strict=True)}
    arrays = ""
    if "shared" in spaces:
        # 12 KiB each, which is all that a kernel has; only the text counts
        arrays = " ".join(
            f"shared shared_{n}: {t}[{12 * 1024 * 8 // bits[n]}];"
            for n, t in zip("abcd", kinds, strict=True)
        )
    return f"kernel k({params}) block(32, 1, 1) {{ {arrays} {' '.join(lines)} }}"


def _configs() -> Iterator[Config]:
    """All that :func:`check_config` lets pass: of legal fragments, with any rest."""
    shapes = dict.fromkeys(s for found in SHAPES.values() for s in found)
    for shape in shapes:

        def legal(use: str, shape: Shape = shape) -> list[str]:
            return [c for c in COMPONENTS if not check_fragment(Fragment(use, shape, c))]

        sums = legal("accumulator")
        for a, b, c, d in itertools.product(legal("a"), legal("b"), sums, sums):
            for saturating, modifier in itertools.product((False, True), ("", *MODIFIERS)):
                config = Config(shape, a, b, c, d, saturating, modifier=modifier)
                if not check_config(config):
                    yield config


CONFIGS = list(_configs())


def _pairs(config: Config) -> list[tuple[str, str]]:
    if COMPONENTS[config.a][0] < 8:
        return [("row", "col")]
    return list(itertools.product(LAYOUTS, LAYOUTS))


def _instructions(ptx: str) -> list[str]:
    return [line.strip() for line in ptx.splitlines() if line.strip().startswith("wmma.")]


def _opcode(line: str) -> str:
    return line.split(" ")[0]


# --- every form -----------------------------------------------------------------------------------


def _rows() -> dict[str, Row]:
    """The accepted spellings of the table that the lowering chooses among.

    Left out: generic addresses and .shared::cta, which say what .global and .shared do; the old
    spelling without .aligned; .rn at the end, which is .rn behind the shape.
    """
    out = {}
    for row in rows():
        if not row.accepted or "(no .aligned)" in row.pattern:
            continue
        for word in row.spellings():
            if not word.startswith("wmma.") or "::cta" in word or word.endswith(".rn"):
                continue
            if word.startswith("wmma.mma") or ".global" in word or ".shared" in word:
                out[word] = row
    return out


def test_number_of_configs() -> None:
    """By hand: f16 4 types x 3 shapes x 2; bf16 3; s8, u8 x (s32, s32 saturating, u32) x 3; tf32 1;
    f64 5 roundings; s4, u4 x 3; b1 2 products x 2."""
    assert len(CONFIGS) == 4 * 3 * 2 + 3 + 2 * 3 * 3 + 1 + 5 + 2 * 3 + 2 * 2


@pytest.fixture(scope="module")
def emitted() -> dict[str, list[tuple[Config, str]]]:
    """Each opcode of each config, with one of its lines."""
    out: dict[str, list[tuple[Config, str]]] = {}
    for config in CONFIGS:
        target = f"sm_{floor(config).sm}"
        text = _text(config, *_pairs(config), spaces=("global", "shared"))
        lowered = lower(text, target=target, version=floor(config).since)
        for line in _instructions(lowered.text()):
            out.setdefault(_opcode(line), []).append((config, line))
    return out


def test_each_form_of_the_table_is_emitted_and_nothing_else(
    emitted: dict[str, list[tuple[Config, str]]],
) -> None:
    table = _rows()
    assert sorted(emitted.keys() - table.keys()) == []
    assert sorted(table.keys() - emitted.keys()) == []


_GROUP = re.compile(r"\{([^}]*)\}")


def test_registers_and_floors_are_those_of_the_table(
    emitted: dict[str, list[tuple[Config, str]]],
) -> None:
    """Each register group has as many registers as the table says; no form stands below its floor.

    Where the table has .s32 registers the lowering has .b32, which are bits and always fit.
    """
    for opcode, row in _rows().items():
        for config, line in emitted[opcode]:
            counts = [len(g.split(",")) for g in _GROUP.findall(line)]
            if opcode.startswith("wmma.mma"):
                sizes = dict(re.findall(r"\b([ABCD])=(\d+)x", row.registers))
                if "D/C" in row.registers:
                    sizes |= {
                        use: {"f16": "4", "f32": "8"}[type_]
                        for use, type_ in (("D", config.result), ("C", config.c))
                    }
                assert counts == [int(sizes[use]) for use in "DABC"], line
                assert floor(config).sm == int(row.min_sm[3:5]), opcode
                assert ".".join(map(str, floor(config).since)) == row.min_ptx, opcode
            else:
                assert counts == [int(re.search(r"=(\d+)x", row.registers)[1])], line  # type: ignore[index]
                assert floor(config).sm >= int(row.min_sm[3:5]), opcode


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_each_config_is_assembled(config: Config) -> None:
    """On its first target and version, and with the newest target unless it has ended."""
    text = _text(config, ("row", "col"), spaces=("global", "shared"))
    limits = floor(config)
    old = lower(text, target=f"sm_{limits.sm}", version=limits.since)
    assert old.kernel.assemble().diagnostics == ()
    if limits.until > (9, 0):
        text = _text(config, ("row", "col"))
        assert lower(text, target="sm_120").kernel.assemble().diagnostics == ()


# --- N28: registers -------------------------------------------------------------------------------

#: Fragment, registers of each lane and their type, spelling of the component: section 9.7.14.4.1
#: of the PTX ISA 9.1 (Matrix Fragments for WMMA), and for C of f64 what assemblers want.
FRAGMENTS = [
    ("a 16x16x16 f16", 8, "b32", "f16"), ("b 16x16x16 f16", 8, "b32", "f16"),
    ("a 32x8x16 f16", 8, "b32", "f16"), ("b 8x32x16 f16", 8, "b32", "f16"),
    ("accumulator 16x16x16 f16", 4, "b32", "f16"), ("accumulator 8x32x16 f16", 4, "b32", "f16"),
    ("accumulator 16x16x16 f32", 8, "f32", "f32"), ("accumulator 16x16x8 f32", 8, "f32", "f32"),
    ("a 16x16x16 bf16", 4, "b32", "bf16"), ("b 16x16x16 bf16", 4, "b32", "bf16"),
    ("a 8x32x16 bf16", 2, "b32", "bf16"), ("b 8x32x16 bf16", 8, "b32", "bf16"),
    ("a 32x8x16 bf16", 8, "b32", "bf16"), ("b 32x8x16 bf16", 2, "b32", "bf16"),
    ("a 16x16x16 s8", 2, "b32", "s8"), ("b 16x16x16 u8", 2, "b32", "u8"),
    ("a 8x32x16 u8", 1, "b32", "u8"), ("b 8x32x16 s8", 4, "b32", "s8"),
    ("a 32x8x16 s8", 4, "b32", "s8"), ("b 32x8x16 u8", 1, "b32", "u8"),
    ("accumulator 16x16x16 s32", 8, "b32", "s32"), ("accumulator 16x16x16 u32", 8, "b32", "s32"),
    ("a 16x16x8 tf32", 4, "b32", "tf32"), ("b 16x16x8 tf32", 4, "b32", "tf32"),
    ("a 8x8x4 f64", 1, "f64", "f64"), ("b 8x8x4 f64", 1, "f64", "f64"),
    ("accumulator 8x8x4 f64", 2, "f64", "f64"),
    ("a 8x8x32 s4", 1, "b32", "s4"), ("b 8x8x32 u4", 1, "b32", "u4"),
    ("accumulator 8x8x32 s32", 2, "b32", "s32"),
    ("a 8x8x128 b1", 1, "b32", "b1"), ("b 8x8x128 b1", 1, "b32", "b1"),
]  # fmt: skip


@pytest.mark.parametrize("row", FRAGMENTS, ids=lambda r: r[0])
def test_registers_of_fragments(row: tuple[str, int, str, str]) -> None:
    text, count, type_, spelling = row
    use, shape, component = text.split()
    m, n, k = map(int, shape.split("x"))
    fragment = Fragment(use, Shape(m, n, k), component)
    assert frag_reg_count(fragment) == count
    assert Wmma.registers(fragment) == (type_, count)
    assert ptx_type(component) == spelling
    assert elt_of(fragment)[1] == COMPONENTS[component][0]
    # the declaration: an accumulator is zero, the others are written by their loads
    lowered = lower(f"kernel k() block(32, 1, 1) {{ fragment x: {text}; }}")
    moves = [t.strip() for t in lowered.text().splitlines() if "mov." in t]
    letter = {"b32": "r", "f32": "f", "f64": "fd"}[type_]
    declared = re.search(rf"\.reg \.{type_} %{letter}<(\d+)>;", lowered.text())
    assert declared is not None
    assert int(declared[1]) == count
    assert moves == []  # nothing reads it


def test_an_accumulator_that_is_read_before_it_is_written_is_zero() -> None:
    head = (
        "kernel k(c: float32[], n: int32) block(32, 1, 1) { fragment z: accumulator 16x16x16 f32;"
    )
    load = "load z (accumulator 16x16x16 f32) from c[0] stride 16 row;"
    store = "store z (accumulator 16x16x16 f32) to c[0] stride 16 row;"

    def zeros(body: str) -> int:
        return lower(f"{head} {body} }}").text().count("mov.f32")

    assert zeros(store) == 8
    assert zeros(load + store) == 0
    assert zeros(f"if n < 2 {{ {load} }} {store}") == 8
    assert zeros(f"for i = 0 to n {{ {load} {store} }}") == 8
    for n in (0, 5):
        found = agree(f"{head} if n < 2 {{ {load} }} {store} }}",
                      {"c": np.arange(256, dtype=np.float32), "n": n})  # fmt: skip
        assert found["c"].any() == (n < 2)


def test_a_fragment_of_a_loop_is_zero_on_every_iteration() -> None:
    text = """kernel k(c: int32[]) block(32, 1, 1) {
  for i = 0 to 2 {
    fragment z: accumulator 16x16x16 s32;
    if i == 0 { load z (accumulator 16x16x16 s32) from c[0] stride 16 row; }
    store z (accumulator 16x16x16 s32) to c[i * 256] stride 16 row;
  }
}"""
    found = agree(text, {"c": np.full(768, 7, np.int32)})["c"]
    assert found.reshape(3, 256).tolist() == [[7] * 256, [0] * 256, [0] * 256]


# --- N29: spellings -------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids="-".join)
@pytest.mark.parametrize("type_", ["f16", "s8", "u8"])
def test_spellings(type_: str, layouts: tuple[str, str], space: str) -> None:
    la, lb = layouts
    config = Config(CUBE, type_, type_, *(("f32",) * 2 if type_ == "f16" else ("s32",) * 2))
    lowered = lower(_text(config, layouts, spaces=(space,)), target="sm_72")
    lines = [_GROUP.sub("{}", t) for t in _instructions(lowered.text())]
    lines = [re.sub(r"\[%rd\d+\]", "[]", t) for t in lines]
    s, c = f"m16n16k16.{space}", config.c
    types = "f32.f32" if type_ == "f16" else f"s32.{type_}.{type_}.s32"
    assert lines == [
        f"wmma.load.a.sync.aligned.{la}.{s}.{type_} {{}}, [], 32;",
        f"wmma.load.b.sync.aligned.{lb}.{s}.{type_} {{}}, [], 32;",
        f"wmma.load.c.sync.aligned.row.{s}.{c} {{}}, [], 32;",
        f"wmma.load.c.sync.aligned.col.{s}.{c} {{}}, [], 32;",
        f"wmma.mma.sync.aligned.{la}.{lb}.m16n16k16.{types} {{}}, {{}}, {{}}, {{}};",
        f"wmma.store.d.sync.aligned.row.{s}.{c} [], {{}}, 32;",
        f"wmma.store.d.sync.aligned.col.{s}.{c} [], {{}}, 32;",
    ]


def test_the_groups_are_those_of_the_fragments() -> None:
    """Each fragment has its registers to itself, and they stand in order in every instruction."""
    lines = _instructions(lower(_text(CONFIGS[0], ("row", "col"))).text())
    groups = [_GROUP.findall(t) for t in lines]
    (a,), (b,), (c,), (c_again,), (d, a_used, b_used, c_used), (d_used,), _ = groups
    assert (a_used, b_used, c_used, d_used, c_again) == (a, b, c, d, c)
    every = [r for g in (a, b, c, d) for r in g.split(", ")]
    assert len(set(every)) == len(every)
    numbers = [int(re.sub(r"\D", "", r)) for r in a.split(", ")]
    assert numbers == list(range(numbers[0], numbers[0] + 8))


# --- N30: frame -----------------------------------------------------------------------------------

FRAME = """kernel k(c: float32[], unused: int64[] align 64, n: int32) block(32, 1, 1) {
  shared read: float16[256];
  shared not_read: float16[8];
  shared wide: int64[2];
  shared bytes: uint8[3];
  shared open: float32[];
  fragment x: a 16x16x16 f16;
  fragment z: accumulator 16x16x16 f32;
  load x (a 16x16x16 f16) from read[0] stride 16 row;
  store z (accumulator 16x16x16 f32) to open[0] stride 16 row;
}"""


def test_frame() -> None:
    text = lower(FRAME, target="sm_75", version=(7, 0)).text()
    assert re.search(r"^\.version 7\.0\n\.target sm_75\n\.address_size 64$", text, re.MULTILINE)
    assert ".reqntid 32, 1, 1" in text
    params = re.findall(r"^    \.param (.*?),?$", text, re.MULTILINE)
    assert params == [
        ".u64 .ptr .global param_c", ".u32 length_c",
        ".u64 .ptr .global .align 64 param_unused", ".u32 length_unused", ".u32 param_n",
    ]  # fmt: skip
    named = {
        name: align for align, name in re.findall(r"\.shared \.align (\d+) \.b\d+ (\w+)", text)
    }
    assert named == {
        "shared_read": "32",
        "shared_not_read": "2",
        "shared_wide": "8",
        "shared_bytes": "1",
        "shared_open": "32",
    }
    assert ".extern .shared .align 32 .b32 shared_open[];" in text
    assert text.index(".extern") < text.index(".entry") < text.index(".reg") < text.index("wmma.")
    assert text.rstrip().endswith("ret;\n}")


def test_a_block_that_is_not_known_is_not_required() -> None:
    text = FRAME.replace("block(32, 1, 1)", "")
    assert ".reqntid" not in lower(text).text()
    assert ".reqntid 8, 8, 1" in lower(text, block=(8, 8, 1)).text()


def test_names_cannot_clash() -> None:
    """Names of a kernel stand beside words of PTX and names that the lowering makes."""
    text = """kernel ret(mov: int32[], param_mov: int32[], length_mov: int32) block(1, 1, 1) {
  shared shared_a: int32[1];
  shared a: int32[1];
  local param: int32[1];
  constant endif_0: int32[] = {3};
  let r0: int32 = endif_0[0];
  let p0: bool = r0 == 3;
  if p0 { a[0] = r0; shared_a[0] = 4; param[0] = 5; }
  mov[0] = a[0] + shared_a[0] * 10 + param[0] * 100 + length_mov * 1000;
  param_mov[0] = length(mov);
}"""
    found = agree(text, {"mov": np.zeros(2, np.int32), "param_mov": np.zeros(1, np.int32),
                         "length_mov": 6}, block=(1, 1, 1))  # fmt: skip
    assert (found["mov"][0], found["param_mov"][0]) == (6543, 2)


# --- U13: a wrong layout --------------------------------------------------------------------------


def test_a_product_in_each_layout_and_the_wrong_one() -> None:
    """Row and column differ in what they compute, both as the oracle says."""
    rng = np.random.default_rng(13)
    config = Config(CUBE, "s8", "s8", "s32", "s32")
    results = []
    arguments: dict[str, Any] = {
        "global_a": rng.integers(-128, 128, 1024).astype(np.int8),
        "global_b": rng.integers(-128, 128, 1024).astype(np.int8),
        "global_c": rng.integers(-1000, 1000, 1024).astype(np.int32),
        "global_d": np.zeros(1024, np.int32),
    }
    for layouts in itertools.product(LAYOUTS, LAYOUTS):
        text = _text(config, layouts).replace("store r (accumulator 16x16x16 s32 subgroup) to "
                                              "global_d[0] stride 32 col;", "")  # fmt: skip
        lowered = lower(text, target="sm_72")
        results.append(agree(text, arguments, target="sm_72")["global_d"].tobytes())
        # the text with the other layout of A: legal, and another result
        other = {"row": "col", "col": "row"}[layouts[0]]
        ptx = lowered.text().replace(
            f"load.a.sync.aligned.{layouts[0]}", f"load.a.sync.aligned.{other}"
        )
        ptx = ptx.replace(f"mma.sync.aligned.{layouts[0]}", f"mma.sync.aligned.{other}")
        assert ptx != lowered.text()
        found = {n: v.copy() for n, v in arguments.items()}
        assert launch(lowered, found, ptx=ptx).clean
        assert found["global_d"].tobytes() != results[-1]
    assert len(set(results)) == 4


# --- NVIDIA's assembler ---------------------------------------------------------------------------


@pytest.mark.ptxas
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_ptxas(target: str, tmp_path: Path) -> None:
    number = int(target[3:])
    legal = [c for c in CONFIGS if floor(c).sm <= number and floor(c).until > (9, 0)]
    for config in legal[number % 4 :: 5]:
        text = _text(config, ("row", "col"), spaces=("global", "shared"))
        assert judged(lower(text, target=target).text(), tmp_path) == "", config

"""Whole kernels of cooperative matrices, as text; ``PTXSIM_UPDATE_GOLDEN=1`` writes them anew."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from coopmat_kernels import lower, refusals
from kernel_judge import judged
from test_copy_golden import GOLDEN, difference

import ptxsim
from lowering.coopmat.api import Lowered

# --- the kernels ----------------------------------------------------------------------------------

#: Nothing known: addresses, strides, lengths and lines are tested once, at the entry.
F16_REGISTER = """
kernel f16_register(a: float16[], b: float16[], c: float32[], d: float32[], lda: int32, ldb: int32,
                    ldc: int32) block(32, 1, 1) {
  fragment x: a 16x16x16 f16;
  fragment y: b 16x16x16 f16;
  fragment z: accumulator 16x16x16 f32;
  load x (a 16x16x16 f16) from a[0] stride lda row;
  load y (b 16x16x16 f16) from b[0] stride ldb row;
  load z (accumulator 16x16x16 f32) from c[0] stride ldc col;
  z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
  store z (accumulator 16x16x16 f32) to d[0] stride ldc row;
}"""

#: Halves reach shared memory through accumulators; A is two of them side by side.
F16_SHARED = """
kernel f16_shared(a: float16[] align 32, b: float16[] align 32, d: float16[] align 32)
    block(32, 1, 1) {
  shared tile: float16[512];
  shared out: float16[256];
  fragment half: accumulator 32x8x16 f16;
  fragment x: a 32x8x16 f16;
  fragment y: b 32x8x16 f16;
  fragment z: accumulator 32x8x16 f16;
  for n = 0 to 1 {
    load half (accumulator 32x8x16 f16) from a[n * 8] stride 16 row;
    store half (accumulator 32x8x16 f16) to tile[n * 8] stride 16 row;
  }
  barrier;
  load x (a 32x8x16 f16) from tile[0] stride 16 row;
  load y (b 32x8x16 f16) from b[0] stride 16 col;
  z = muladd x, y, z (32x8x16 f16*f16+f16->f16);
  store z (accumulator 32x8x16 f16) to out[0] stride 32 col;
  barrier;
  load half (accumulator 32x8x16 f16) from out[0] stride 32 col;
  half = muladd x, y, half (32x8x16 f16*f16+f16->f16);
  store half (accumulator 32x8x16 f16) to d[0] stride 8 row;
}"""

#: Accumulators that differ in type, both ways.
F16_MIXED = """
kernel f16_mixed(a: float16[], b: float16[], c: float32[], narrow: float16[], wide: float32[])
    block(32, 1, 1) {
  fragment x: a 8x32x16 f16;
  fragment y: b 8x32x16 f16;
  fragment z: accumulator 8x32x16 f32;
  fragment h: accumulator 8x32x16 f16;
  load x (a 8x32x16 f16) from a[0] stride 16 col;
  load y (b 8x32x16 f16) from b[0] stride 32 row;
  load z (accumulator 8x32x16 f32) from c[0] stride 32 row;
  h = muladd x, y, z (8x32x16 f16*f16+f32->f16);
  store h (accumulator 8x32x16 f16) to narrow[0] stride 8 col;
  z = muladd x, y, h (8x32x16 f16*f16+f16->f32);
  store z (accumulator 8x32x16 f32) to wide[0] stride 8 col;
}"""

#: Two warps, a loop whose tests of the stride are hoisted, and bases that the caller promises.
BF16_LOOP = """
kernel bf16_loop(a: bfloat16[] align 32, b: bfloat16[] align 32, d: float32[] align 32,
                 lda: int32, steps: int32) block(64, 1, 1) {
  let warp: int32 = thread_idx_x / 32;
  fragment x: a 32x8x16 bf16;
  fragment y: b 32x8x16 bf16;
  fragment z: accumulator 32x8x16 f32;
  for k = 0 to steps - 1 {
    load x (a 32x8x16 bf16) from a[warp * 32 * lda + k * 16] stride lda row;
    load y (b 32x8x16 bf16) from b[k * 128] stride 8 row;
    z = muladd x, y, z (32x8x16 bf16*bf16+f32->f32);
  }
  store z (accumulator 32x8x16 f32) to d[warp * 256] stride 8 row;
}"""

#: Tiles that threads fill, and an epilogue element by element behind a barrier.
TF32_EPILOGUE = """
kernel tf32_epilogue(a: float32[], b: float32[], bias: float32[], d: float32[]) block(32, 2, 1) {
  shared left: float32[256];
  shared right: float32[256];
  shared out: float32[512];
  let lane: int32 = thread_idx_x;
  let warp: int32 = thread_idx_y;
  for n = 0 to 3 {
    left[warp * 128 + n * 32 + lane] = a[warp * 128 + n * 32 + lane];
    right[warp * 128 + n * 32 + lane] = b[warp * 128 + n * 32 + lane];
  }
  barrier warp;
  fragment x: a 16x16x8 tf32;
  fragment y: b 16x16x8 tf32;
  fragment z: accumulator 16x16x8 f32;
  load x (a 16x16x8 tf32) from left[warp * 128] stride 8 row;
  load y (b 16x16x8 tf32) from right[warp * 128] stride 8 col;
  z = muladd x, y, z (16x16x8 tf32*tf32+f32->f32);
  store z (accumulator 16x16x8 f32) to out[warp * 256] stride 16 row;
  barrier;
  for n = 0 to 7 {
    let i: int32 = warp * 256 + n * 32 + lane;
    d[i] = out[(i + 256) % 512] * 0.5f32 + bias[lane % 16];
  }
}"""

F64_ROUNDINGS = """
kernel f64_roundings(a: float64[], b: float64[], c: float64[], d: float64[]) block(32, 1, 1) {
  fragment x: a 8x8x4 f64;
  fragment y: b 8x8x4 f64;
  fragment z: accumulator 8x8x4 f64;
  fragment r: accumulator 8x8x4 f64;
  load x (a 8x8x4 f64) from a[0] stride 4 row;
  load y (b 8x8x4 f64) from b[0] stride 8 row;
  load z (accumulator 8x8x4 f64) from c[0] stride 8 col;
  r = muladd x, y, z (8x8x4 f64*f64+f64->f64);
  store r (accumulator 8x8x4 f64) to d[0] stride 8 row;
  r = muladd x, y, z (8x8x4 f64*f64+f64->f64 rz);
  store r (accumulator 8x8x4 f64) to d[64] stride 8 row;
  r = muladd x, y, z (8x8x4 f64*f64+f64->f64 rm);
  store r (accumulator 8x8x4 f64) to d[128] stride 8 row;
  r = muladd x, y, z (8x8x4 f64*f64+f64->f64 rp);
  store r (accumulator 8x8x4 f64) to d[192] stride 8 col;
  r = muladd x, y, r (8x8x4 f64*f64+f64->f64 rn);
  store r (accumulator 8x8x4 f64) to d[256] stride 8 row;
}"""

S8_SATURATING = """
kernel s8_saturating(a: int8[], b: int8[], c: int32[], d: int32[]) block(32, 1, 1) {
  fragment x: a 16x16x16 s8;
  fragment y: b 16x16x16 s8;
  fragment z: accumulator 16x16x16 s32;
  load x (a 16x16x16 s8) from a[0] stride 24 col;
  load y (b 16x16x16 s8) from b[8] stride 24 col;
  load z (accumulator 16x16x16 s32) from c[0] stride 16 row;
  z = muladd x, y, z (16x16x16 s8*s8+s32->s32 saturating);
  store z (accumulator 16x16x16 s32) to d[0] stride 16 col;
}"""

#: A branch that the lanes must take together, with tests that stay inside it.
U8_BRANCH = """
kernel u8_branch(a: uint8[], b: uint8[], flags: int32[], d: int32[] align 32) {
  fragment x: a 8x32x16 u8;
  fragment y: b 8x32x16 u8;
  fragment z: accumulator 8x32x16 u32;
  if flags[block_idx_x] > 0 {
    let step: int32 = flags[block_idx_x];
    load x (a 8x32x16 u8) from a[block_idx_x * 8 * step] stride step row;
    load y (b 8x32x16 u8) from b[0] stride 32 row;
    z = muladd x, y, z (8x32x16 u8*u8+u32->u32);
  } else {
    load z (accumulator 8x32x16 u32) from d[block_idx_x * 256] stride 32 row;
  }
  store z (accumulator 8x32x16 u32) to d[block_idx_x * 256] stride 32 row;
}"""

#: Addresses below a byte: the index is tested, in bits.
S4_ADDRESS = """
kernel s4_address(a: int4[] align 4, b: int4[], c: int32[], d: int32[], at: int32, ldb: int32)
    block(32, 1, 1) {
  fragment x: a 8x8x32 s4;
  fragment y: b 8x8x32 s4;
  fragment z: accumulator 8x8x32 s32;
  load x (a 8x8x32 s4) from a[at] stride 32 row;
  load y (b 8x8x32 s4) from b[at + 8] stride ldb col;
  load z (accumulator 8x8x32 s32) from c[0] stride 8 col;
  z = muladd x, y, z (8x8x32 s4*s4+s32->s32 saturating);
  store z (accumulator 8x8x32 s32) to d[0] stride 8 row;
}"""

U4_WHILE = """
kernel u4_while(a: uint4[] align 32, b: uint4[] align 32, d: int32[] align 32, n: int32)
    block(32, 1, 1) {
  fragment x: a 8x8x32 u4;
  fragment y: b 8x8x32 u4;
  fragment z: accumulator 8x8x32 u32;
  let mut k: int32 = 0;
  while k < n {
    load x (a 8x8x32 u4) from a[k] stride n row;
    load y (b 8x8x32 u4) from b[k] stride n col;
    z = muladd x, y, z (8x8x32 u4*u4+u32->u32);
    k = k + 32;
  }
  store z (accumulator 8x8x32 u32) to d[0] stride 8 col;
}"""

B1_XOR = """
kernel b1_xor(a: bit[], b: bit[], c: int32[], d: int32[], lda: int32) block(32, 1, 1) {
  fragment x: a 8x8x128 b1;
  fragment y: b 8x8x128 b1;
  fragment z: accumulator 8x8x128 s32;
  load x (a 8x8x128 b1) from a[0] stride lda row;
  load y (b 8x8x128 b1) from b[32] stride 160 col;
  load z (accumulator 8x8x128 s32) from c[0] stride 8 row;
  z = muladd x, y, z (8x8x128 b1*b1+s32->s32 xor);
  store z (accumulator 8x8x128 s32) to d[0] stride 8 row;
}"""

#: A block of the launch, known to the lowering by the option alone.
B1_AND = """
kernel b1_and(a: bit[] align 32, b: bit[] align 32, d: int32[] align 32) {
  let warp: int32 = (thread_idx_x + thread_idx_y * block_dim_x) / 32;
  fragment x: a 8x8x128 b1;
  fragment y: b 8x8x128 b1;
  fragment z: accumulator 8x8x128 u32;
  for k = 0 to 1 {
    load x (a 8x8x128 b1) from a[(warp * 8) * 256 + k * 128] stride 256 row;
    load y (b 8x8x128 b1) from b[k * 128] stride 256 col;
    z = muladd x, y, z (8x8x128 b1*b1+u32->u32 and);
  }
  store z (accumulator 8x8x128 u32) to d[warp * 64] stride 8 row;
}"""

#: Sums through the dynamic array, changed by threads, and added to again.
S32_DYNAMIC = """
kernel s32_dynamic(a: int8[] align 32, b: int8[] align 32, d: int32[] align 32, ld: int32)
    block(32, 1, 1) {
  shared sums: int32[];
  fragment x: a 32x8x16 s8;
  fragment y: b 32x8x16 s8;
  fragment z: accumulator 32x8x16 s32;
  load x (a 32x8x16 s8) from a[0] stride 16 row;
  load y (b 32x8x16 s8) from b[0] stride 16 col;
  z = muladd x, y, z (32x8x16 s8*s8+s32->s32);
  store z (accumulator 32x8x16 s32) to sums[0] stride ld row;
  barrier;
  let lane: int32 = thread_idx_x;
  for n = 0 to 7 {
    if sums[lane * ld + n] < 0 {
      sums[lane * ld + n] = 0 - sums[lane * ld + n] * n;
    }
  }
  barrier;
  load z (accumulator 32x8x16 s32) from sums[0] stride ld row;
  z = muladd x, y, z (32x8x16 s8*s8+s32->s32);
  store z (accumulator 32x8x16 s32) to d[0] stride 8 row;
}"""

#: What the seed lowers, for both of its rules.
U8_SEED = """
kernel u8_seed(a: uint8[], b: uint8[], c: int32[], d: int32[], ld: int32) {
  fragment x: a 16x16x16 u8;
  fragment y: b 16x16x16 u8;
  fragment z: accumulator 16x16x16 u32;
  load x (a 16x16x16 u8) from a[block_idx_x * 256] stride ld row;
  load y (b 16x16x16 u8) from b[0] stride ld col;
  load z (accumulator 16x16x16 u32) from c[0] stride ld row;
  z = muladd x, y, z (16x16x16 u8*u8+u32->u32);
  store z (accumulator 16x16x16 u32) to d[block_idx_x * 256] stride ld col;
}"""

#: Signs that differ, which mma alone has.
S8_U8 = """
kernel s8_u8(a: int8[], b: uint8[], d: int32[]) block(32, 1, 1) {
  fragment x: a 16x16x16 s8;
  fragment y: b 16x16x16 u8;
  fragment z: accumulator 16x16x16 s32;
  load x (a 16x16x16 s8) from a[0] stride 16 row;
  load y (b 16x16x16 u8) from b[0] stride 16 row;
  z = muladd x, y, z (16x16x16 s8*u8+s32->s32);
  store z (accumulator 16x16x16 s32) to d[0] stride 16 row;
}"""

#: A result in the range of f16, which PTX had up to version 6.4.
F16_SATURATING = """
kernel f16_saturating(a: float16[], b: float16[], c: float16[], d: float16[], ld: int32)
    block(32, 1, 1) {
  fragment x: a 16x16x16 f16;
  fragment y: b 16x16x16 f16;
  fragment z: accumulator 16x16x16 f16;
  load x (a 16x16x16 f16) from a[0] stride ld col;
  load y (b 16x16x16 f16) from b[0] stride ld row;
  load z (accumulator 16x16x16 f16) from c[0] stride ld row;
  z = muladd x, y, z (16x16x16 f16*f16+f16->f16 saturating);
  store z (accumulator 16x16x16 f16) to d[0] stride ld col;
}"""


@dataclass(frozen=True)
class Case:
    """A kernel, how it is lowered, and the numbers of the targets that have it."""

    text: str
    since: int = 80
    until: int = 999
    vias: tuple[str, ...] = ("wmma", "mma")
    options: dict[str, Any] = field(default_factory=dict)

    def lowered(self, via: str, target: str) -> Lowered:
        """The kernel, lowered for a target."""
        return lower(self.text, via=via, target=target, **self.options)

    def targets(self, via: str) -> list[str]:
        """The targets that have the kernel."""
        floor = max(80, self.since) if via == "mma" else self.since
        return [f"sm_{n}" for n in TARGETS if floor <= n <= self.until]


TARGETS = (75, 80, 90, 100, 120)
CASES = {
    "f16_register": Case(F16_REGISTER, 75),
    "f16_shared": Case(F16_SHARED, 75),
    "f16_mixed": Case(F16_MIXED, 75, vias=("wmma",)),
    "f16_saturating": Case(F16_SATURATING, 75, 75, ("wmma",), {"version": (6, 4)}),
    "bf16_loop": Case(BF16_LOOP),
    "tf32_epilogue": Case(TF32_EPILOGUE),
    "f64_roundings": Case(F64_ROUNDINGS),
    "s8_saturating": Case(S8_SATURATING, 75),
    "u8_branch": Case(U8_BRANCH, 75),
    "s4_address": Case(S4_ADDRESS, 75),
    "u4_while": Case(U4_WHILE, 75),
    "b1_xor": Case(B1_XOR, 75),
    "b1_and": Case(B1_AND, options={"block": (16, 4, 1)}),
    "s32_dynamic": Case(S32_DYNAMIC, 75),
    "u8_cuda": Case(U8_SEED, 75, vias=("wmma",), options={"rule": "cuda"}),
    "u8_faithful": Case(U8_SEED, 75, vias=("wmma",), options={"faithful": True, "bounds": True}),
    "s8_u8": Case(S8_U8, vias=("mma",)),
}


#: Each kernel by each set of instructions, and each of these for each of its targets.
KEPT = [(name, via) for name, case in CASES.items() for via in case.vias]
LOWERED = [(name, via, target) for name, via in KEPT for target in CASES[name].targets(via)]


def home(name: str, via: str) -> str:
    """The target of a golden file: sm_80, or what comes nearest."""
    targets = CASES[name].targets(via)
    return "sm_80" if "sm_80" in targets else targets[-1]


def file(name: str, via: str) -> str:
    """The name of a golden file."""
    return f"coopmat_{name}" if via == "wmma" else f"coopmat_{name}_{via}"


# --- the files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "via"), KEPT)
def test_text(name: str, via: str) -> None:
    assert difference(file(name, via), CASES[name].lowered(via, home(name, via)).text()) == ""


def test_every_file_has_a_kernel() -> None:
    assert {p.stem for p in GOLDEN.glob("coopmat_*.ptx")} == {file(*kept) for kept in KEPT}


def test_a_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_copy_golden.UPDATE", False)
    text = CASES["b1_xor"].lowered("wmma", "sm_80").text()
    told = difference("coopmat_b1_xor", text.replace(".xor.", ".and."))
    assert told.startswith("coopmat_b1_xor.ptx:") and ".and." in told


def test_files_cover_what_there_is() -> None:
    """What stands in the files, by the spelling of wmma, of mma, and of the tests."""
    text = "".join((GOLDEN / f"{file(*kept)}.ptx").read_text() for kept in KEPT)
    words = set(re.findall(r"^\s+(?:@!?%p\d+ )?([a-z][\w.:]*)", text, re.MULTILINE))
    found = {w: w.split(".") for w in words if re.match(r"wmma\.(load|store)", w)}
    assert {parts[6] for parts in found.values()} == {
        "m16n16k16", "m32n8k16", "m8n32k16", "m16n16k8", "m8n8k4", "m8n8k32", "m8n8k128",
    }  # fmt: skip
    assert {parts[8] for parts in found.values() if parts[2] in "ab"} == {
        "f16", "bf16", "tf32", "f64", "s8", "u8", "s4", "u4", "b1",
    }  # fmt: skip
    for use in "abcd":
        assert {parts[5] for parts in found.values() if parts[2] == use} == {"row", "col"}
        assert {parts[7] for parts in found.values() if parts[2] == use} == {"global", "shared"}
    products = " ".join(w for w in words if w.startswith(("wmma.mma", "mma.sync")))
    for word in ("xor.popc", "and.popc", ".rn.", ".rz.", ".rm.", ".rp.", ".satfinite"):
        assert word in products, word
    for word in ("vote.sync.uni.pred", "bar.sync", "ldmatrix.sync.aligned.m8n8.x4.shared"):
        assert any(w.startswith(word) for w in words), word
    assert ".extern .shared .align 32" in text


def test_tests_stand_where_they_can_fail() -> None:
    """Those of a loop before it, if they do not change; those of a branch in it; others first."""
    told = {name: CASES[name].lowered("wmma", "sm_80").explain() for name in HOISTED}
    for name, lines in HOISTED.items():
        for line in lines:
            assert f"  {line}\n" in told[name]


HOISTED = {
    "f16_register": ["at the entry: stride lda is a multiple of 16 elements"],
    "bf16_loop": [
        "before the loop of line 8: stride lda is at least 16",
        "at line 9: index thread_idx_x / 32 * 32 * lda + k * 16 is not negative",
        "at the entry: 32 x 8 elements from thread_idx_x / 32 * 256, stride 8, lie in 'd'",
    ],
    "u8_branch": [
        "at line 6: all lanes go the same way",
        "at line 8: stride step is a multiple of 4 elements",
    ],
    "s4_address": ["at the entry: a[at] is at a multiple of 4 bytes"],
    "u4_while": ["before the loop of line 8: stride n is a multiple of 8 elements"],
    "tf32_epilogue": ["nothing"],
}


# --- assemblers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "via", "target"), LOWERED)
def test_is_assembled(name: str, via: str, target: str) -> None:
    module = ptxsim.assemble(CASES[name].lowered(via, target).text())
    assert module.diagnostics == ()


@pytest.mark.ptxas
class TestPtxas:
    """NVIDIA's assembler takes every kernel for every target."""

    @pytest.mark.parametrize("kept", KEPT, ids="-".join)
    def test_accepts_the_file(self, kept: tuple[str, str], tmp_path: Path) -> None:
        assert judged((GOLDEN / f"{file(*kept)}.ptx").read_text(), tmp_path) == ""

    @pytest.mark.parametrize(("name", "via", "target"), LOWERED)
    def test_accepts(self, name: str, via: str, target: str, tmp_path: Path) -> None:
        assert judged(CASES[name].lowered(via, target).text(), tmp_path) == ""

    def test_refuses_a_target_below_the_floor(self, tmp_path: Path) -> None:
        text = (GOLDEN / "coopmat_b1_and.ptx").read_text()
        assert "sm_80" in judged(text.replace(".target sm_80", ".target sm_75"), tmp_path)


# --- floors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "floor", "below", "code"),
    [
        ("f16_register", "sm_70", "sm_62", "R12"),
        ("f16_shared", "sm_70", "sm_62", "R12"),
        ("f16_mixed", "sm_70", "sm_62", "R12"),
        ("s8_saturating", "sm_72", "sm_70", "R13"),
        ("u8_branch", "sm_72", "sm_70", "R13"),
        ("u8_cuda", "sm_72", "sm_70", "R13"),
        ("u8_faithful", "sm_72", "sm_70", "R13"),
        ("s4_address", "sm_75", "sm_72", "R31"),
        ("b1_xor", "sm_75", "sm_72", "R31"),
        ("b1_and", "sm_80", "sm_75", "R31"),
        ("bf16_loop", "sm_80", "sm_75", "R31"),
        ("tf32_epilogue", "sm_80", "sm_75", "R31"),
        ("f64_roundings", "sm_80", "sm_75", "R31"),
    ],
)
def test_floor(name: str, floor: str, below: str, code: str) -> None:
    """wmma.mma in the PTX ISA 9.1, Target ISA Notes: the first target is enough, the one below it
    is refused.  The assemblers of CUDA 13 have ended sm_70 and sm_72; ptxsim has not."""
    case = CASES[name]
    text = case.lowered("wmma", floor).text()
    assert f".target {floor}\n" in text and ptxsim.assemble(text).diagnostics == ()
    assert {r.code for r in refusals(case.text, target=below, **case.options)} == {code}


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if "mma" in c.vias])
def test_floor_of_mma(name: str) -> None:
    """mma.sync of 16 rows comes with sm_80."""
    case = CASES[name]
    found = refusals(case.text, target="sm_75", via="mma", **case.options)
    assert found and {r.code for r in found} == {"R31"}


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.vias == ("mma",)])
def test_wmma_refuses_different_signs(name: str) -> None:
    assert {r.code for r in refusals(CASES[name].text)} == {"R6"}


def test_mma_refuses_accumulators_that_differ() -> None:
    assert [r.code for r in refusals(F16_MIXED, via="mma")] == ["R32", "R32"]


def test_saturation_of_f16_has_ended() -> None:
    """PTX ISA 6.5: .satfinite of wmma.mma with f16 is gone."""
    assert {r.code for r in refusals(F16_SATURATING, target="sm_75", version=(6, 5))} == {"R31"}

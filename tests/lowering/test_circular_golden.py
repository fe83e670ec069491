"""Whole kernels of matrix products, as text; ``PTXSIM_UPDATE_GOLDEN=1`` writes them anew.

The first line of a file says what NVIDIA's assembler makes of it, where one was on the PATH.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from kernel_judge import assembled, release
from matmul_runs import run
from test_copy_golden import GOLDEN

import ptxsim
from lowering.circular import Matmul, Scheme, lower_matmul

UPDATE = os.environ.get("PTXSIM_UPDATE_GOLDEN") == "1"
SMALL = (64, 64, 32)
PRODUCTS = {
    "matmul_f16_peel_off": Matmul(128, 128, 1000, layout="NT", scheme=Scheme("off")),
    "matmul_f16_peel_on": Matmul(128, 128, 1000, layout="NT"),
    "matmul_f16_peel_aligned": Matmul(
        128, 128, 1001, layout="NT", scheme=Scheme("aligned"),
        strides={"a": (1008, 1), "b": (1008, 1)},
    ),
    "matmul_small_peel_off": Matmul(40, 24, 88, (32, 32, 32), layout="NT", scheme=Scheme("off")),
    "matmul_small_peel_aligned": Matmul(
        40, 24, 45, (32, 32, 16), layout="NT", scheme=Scheme("aligned"),
        strides={"a": (48, 1), "b": (48, 1)},
    ),
    "matmul_s8": Matmul(100, 72, 80, (64, 64, 64), dtype="s8", layout="NT", stages=2),
    "matmul_f32": Matmul(100, 72, 75, (64, 64, 16), dtype="f32", layout="TN", stages=4),
    "matmul_tf32": Matmul(100, 72, 72, SMALL, dtype="tf32", layout="NN"),
    "matmul_bf16_symbolic": Matmul(
        100, 72, 72, SMALL, dtype="bf16", layout="NT", symbolic=frozenset("mnk"),
        multiples={"k": 8},
    ),
    "matmul_batched": Matmul(40, 24, 88, (32, 32, 32), layout="NT", batch=3),
    "matmul_two_axes": Matmul(40, 24, (7, 12), (32, 32, 16), layout="NT"),
    "matmul_sm_90": Matmul(100, 72, 72, SMALL, layout="TT", target="sm_90"),
    "matmul_sm_75": Matmul(100, 72, 72, SMALL, layout="NT", target="sm_75"),
}  # fmt: skip


def figures(text: str, folder: Path) -> str:
    """The line about registers and shared memory; skips where there is no such assembler."""
    done = assembled(text, folder, "-v")
    assert done.returncode == 0, done.stderr
    (registers,) = re.findall(r"Used (\d+) registers", done.stderr)
    shared = re.findall(r"(\d+) bytes smem", done.stderr) or ["0"]
    dynamic = re.findall(r"^// launch: .* smem=(\d+)$", text, re.MULTILINE) or ["0"]
    (spilled,) = re.findall(r"(\d+) bytes spill stores", done.stderr)
    return (
        f"// ptxas {release()}: {registers} registers, {spilled} bytes spilled, "
        f"{int(shared[0]) + int(dynamic[0])} bytes of shared memory\n"
    )


def kept(name: str) -> tuple[str, str]:
    """The line of the assembler and the kernel of a golden file."""
    first, rest = (GOLDEN / f"{name}.ptx").read_text().split("\n", 1)
    return f"{first}\n", rest


@pytest.mark.parametrize("name", PRODUCTS)
def test_text(name: str, tmp_path: Path) -> None:
    text = lower_matmul(PRODUCTS[name]).text()
    if UPDATE:
        (GOLDEN / f"{name}.ptx").write_text(figures(text, tmp_path) + text)
    assert kept(name)[1] == text


#: As long as matmul_f16_peel_on, and there are small ones.
LONG = ("matmul_f16_peel_off", "matmul_f16_peel_aligned")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in PRODUCTS]
)
def test_kernel_runs(name: str) -> None:
    assert run(PRODUCTS[name]).faults == []


def test_every_file_has_a_product() -> None:
    assert {p.stem for p in GOLDEN.glob("matmul_*.ptx")} == set(PRODUCTS)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_golden_kernel_assembles(name: str) -> None:
    text = (GOLDEN / f"{name}.ptx").read_text()
    assert ptxsim.assemble(text).diagnostics == ()


@pytest.mark.parametrize("name", PRODUCTS)
def test_shared_memory_and_spills(name: str) -> None:
    """The tiles of all slots, and nothing spilled; rows of f32 but the last are 16 bytes apart."""
    spec = PRODUCTS[name]
    spilled, shared = re.findall(r"(\d+) bytes", kept(name)[0])
    m, n, k = spec.tile
    pads = 4 * (2 * k) if spec.dtype == "f32" else 0
    size = {"f16": 2, "bf16": 2, "s8": 1}.get(spec.dtype, 4)
    assert spilled == "0"
    last = 2 * 16 if spec.dtype == "f32" else 0
    assert int(shared) == spec.stages * ((m + n) * k + pads) * size - last


@pytest.mark.ptxas
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_assembler_says_the_same(name: str, tmp_path: Path) -> None:
    line, text = kept(name)
    found = figures(text, tmp_path)
    if found.split(":")[0] == line.split(":")[0]:
        assert found == line

"""The words of cooperative matrices; the cases are those of Sarek's test_sarek_coopmat."""

from __future__ import annotations

import importlib

import pytest

from lowering.coopmat.seed import SEED_NAMES
from lowering.coopmat.vocabulary import (
    Available,
    Config,
    Fragment,
    Shape,
    Unavailable,
    Unknown,
    accumulation_is_exact,
    components_per_invocation,
    config_fits_subgroup,
    find_config,
    regime,
    verdict,
)

CUBE = Shape(16, 16, 16)
F16_F32 = Config(CUBE, "f16", "f16", "f32", "f32")
S8 = Config(CUBE, "s8", "s8", "s32", "s32")
#: Four pairs of eight-bit types with three accumulators, and two configs of f16.
SUPPORT = [
    Config(CUBE, a, b, *accumulator)
    for a in ("u8", "s8")
    for b in ("u8", "s8")
    for accumulator in (("u32", "u32"), ("s32", "s32", True), ("s32", "s32"))
] + [Config(CUBE, "f16", "f16", "f16", "f16"), F16_F32]


def test_config_text() -> None:
    assert str(F16_F32) == "16x16x16 f16*f16+f32->f32 subgroup"
    saturating = Config(CUBE, "s8", "s8", "s32", "s32", True)
    assert str(saturating) == "16x16x16 s8*s8+s32->s32 saturating subgroup"


def test_exactness() -> None:
    exact = [
        S8,
        Config(CUBE, "u8", "u8", "u32", "u32"),
        Config(CUBE, "s8", "s8", "s32", "s32", True),
    ]
    assert all(accumulation_is_exact(c) and regime(c) == "strict" for c in exact)
    for c in (F16_F32, Config(CUBE, "f16", "f16", "f16", "f16")):
        assert not accumulation_is_exact(c)
        assert regime(c) == "relaxed-bounded"
    assert sum(map(accumulation_is_exact, SUPPORT)) == 12
    assert len(SUPPORT) == 14


def test_fragment_extents() -> None:
    found = [
        (f.rows, f.columns, f.components)
        for f in Config(Shape(8, 32, 4), "f16", "f16", "f32", "f32").fragments()[:3]
    ]
    assert found == [(8, 4, 32), (4, 32, 128), (8, 32, 256)]


def test_components_per_invocation() -> None:
    fragment = Fragment("accumulator", CUBE, "f32")
    assert components_per_invocation(fragment, 64) == 4
    assert components_per_invocation(fragment, 32) == 8
    with pytest.raises(ValueError, match=r"256 components do not divide among 24"):
        components_per_invocation(fragment, 24)
    with pytest.raises(ValueError, match="among 0"):
        components_per_invocation(fragment, 0)


@pytest.mark.parametrize(
    ("shape", "size", "fits"),
    [
        (CUBE, 64, True), (Shape(8, 8, 8), 64, True), (Shape(8, 8, 8), 128, False),
        (Shape(8, 32, 4), 32, True), (Shape(8, 32, 4), 64, False),
    ],
)  # fmt: skip
def test_config_fits_subgroup(shape: Shape, size: int, fits: bool) -> None:
    assert config_fits_subgroup(Config(shape, "f16", "f16", "f32", "f32"), size) is fits


class TestVerdict:
    def test_unknown_support(self) -> None:
        found = verdict(None, S8)
        assert isinstance(found, Unknown)
        assert "not probed" in found.reason

    @pytest.mark.parametrize(
        "config",
        [
            Config(CUBE, "f32", "f32", "f32", "f32"),
            Config(Shape(8, 8, 8), "s8", "s8", "s32", "s32"),
            Config(CUBE, "s8", "s8", "s32", "s32", scope="workgroup"),
            Config(CUBE, "u8", "u8", "u32", "u32", True),
        ],
    )
    def test_unavailable(self, config: Config) -> None:
        found = verdict(SUPPORT, config)
        assert isinstance(found, Unavailable)
        assert str(config) in found.reason

    def test_empty_support(self) -> None:
        assert isinstance(verdict([], S8), Unavailable)

    def test_available(self) -> None:
        assert verdict(SUPPORT, S8) == Available(S8)


def test_find_config_prefers_the_one_that_does_not_saturate() -> None:
    assert find_config(SUPPORT, "s8", "s8", "s32", "s32") == S8
    assert find_config(SUPPORT, "f32", "f32", "f32", "f32") is None


@pytest.mark.parametrize("name", SEED_NAMES)
def test_every_function_of_the_seed_is_here(name: str) -> None:
    parts = SEED_NAMES[name].split(".")
    found: object = None
    for count in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        break
    assert found is not None


def test_all_functions_of_the_seed_are_named() -> None:
    """As the issue lists them."""
    assert " ".join(SEED_NAMES) == (
        "min_sm min_sm_int8 shape_16 refuse check_fragment is_8bit is_int32 check_config"
        " operand_layouts accessed_buffers sm_number check_kernel regs_text layout_suffix elt_of"
        " elt_name ptx_type frag_reg_count operand_layout emit_decl emit_access emit_load"
        " emit_store emit_muladd emit_op"
    )

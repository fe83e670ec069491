"""The header of a file, and SPEC words in both spellings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxsim import UsageError
from ptxsim.cli.header import parse_header
from ptxsim.cli.spec import parse_spec

CASE = """\
// case:    020-min-drops-nan
// class:   numerics
// verdict: mismatch   (also accepted: race-shared)
// launch:  grid=4,1,1 block=32,1,1 cluster=2,1,1 smem=1024 entry=k
// arg:     a   f32[32] = np.where(np.arange(32) % 4 == 0, np.nan, np.arange(32))
// arg:     b   f16[8] = ones   # 32-byte aligned
// arg:     src u32[128] = (iota * iota) % 32
// arg:     n   u32 = 100
// out:     a = a_expected.npy
// ref:     np.array_equal(out, np.minimum(a, b), equal_nan=True)
// why:     launch: and arg: in a sentence are no header words
.version 8.0
// arg:     late u32 = 1
"""


class TestHeader:
    def test_launch(self) -> None:
        launch = parse_header(CASE, "k.ptx", Path()).launch
        assert launch.grid == (4, 1, 1)
        assert launch.block == (32, 1, 1)
        assert launch.cluster == (2, 1, 1)
        assert (launch.smem, launch.entry) == (1024, "k")

    def test_arguments_in_order(self) -> None:
        args = parse_header(CASE, "k.ptx", Path()).args
        assert [(a.name, a.type.token, a.count) for a in args] == [
            ("a", "f32", 32), ("b", "f16", 8), ("src", "u32", 128), ("n", "u32", None),
        ]  # fmt: skip
        a, b, src, n = (spec.make() for spec in args)
        assert np.array_equal(np.isnan(a), np.arange(32) % 4 == 0)
        assert b.dtype == np.float16 and (b == 1).all()
        assert list(src[:7]) == [0, 1, 4, 9, 16, 25, 4]
        assert n == np.uint32(100) and isinstance(n, np.uint32)

    def test_expected_outputs_are_found_from_the_folder(self) -> None:
        (out,) = parse_header(CASE, "k.ptx", Path("kernels")).outs
        assert (out.name, out.path) == ("a", Path("kernels/a_expected.npy"))

    def test_nothing_said(self) -> None:
        header = parse_header(".version 8.0\n// launch: grid=1 block=1\n", "k.ptx", Path())
        assert header.launch.grid is None and header.launch.block is None
        assert header.args == [] and header.outs == []

    def test_blank_lines_and_block_comments_do_not_end_it(self) -> None:
        text = "/* made by\n   // launch: grid=9\n*/\n\n  // launch: grid=2 block=64\n.version 8.0"
        assert parse_header(text, "k.ptx", Path()).launch.grid == (2, 1, 1)

    def test_carriage_returns(self) -> None:
        header = parse_header(CASE.replace("\n", "\r\n"), "k.ptx", Path())
        assert header.launch.block == (32, 1, 1)
        assert [a.name for a in header.args] == ["a", "b", "src", "n"]

    def test_byte_order_mark(self) -> None:
        header = parse_header("\ufeff// launch: grid=2 block=64\n", "k.ptx", Path())
        assert header.launch.grid == (2, 1, 1)

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("launch: grid=1,1,1,1 block=1", r"grid is X\[,Y\[,Z\]\]"),
            ("launch: grid=0 block=1", "with positive numbers, not '0'"),
            ("launch: grid=-1 block=1", "with positive numbers, not '-1'"),
            ("launch: grid=1 threads=2", "unknown word 'threads'"),
            ("launch: grid", "cannot read 'grid'"),
            ("launch: smem=many", "smem is a number"),
            ("arg: x f32[4]", "cannot read this argument"),
            ("arg: x f33[4] = iota", "unknown type 'f33'"),
            ("arg: x f32[0] = iota", "'0' is not a positive number"),
            ("arg: x f32[-4] = iota", "cannot read this argument"),
            ("arg: x f32[4] =", "the initial value is missing"),
            ("arg: x f32[4] = iot", "unknown word 'iot'"),
            ("arg: x f64[400000000] = zeros", "3200000000 bytes; at most 2147483648 are allowed"),
            ("arg: x u8[99999999999999999999] = zeros", "is not a positive number"),
            ("arg: n u8 = 256", "256 does not fit u8"),
            ("arg: n u32 = 1.5", "1.5 is no value of u32"),
            ("arg: n u32 = undef", "a scalar needs a value"),
            ("out: y", "write 'out: NAME = FILE.npy'"),
        ],
    )
    def test_refusals_name_the_line(self, line: str, reason: str) -> None:
        with pytest.raises(UsageError, match=rf"^k\.ptx:2: .*{reason}"):
            parse_header(f"// a kernel\n// {line}\n.version 8.0\n", "k.ptx", Path())

    def test_words_may_stand_once(self) -> None:
        twice = "// launch: grid=1 block=1\n"
        with pytest.raises(UsageError, match=r"k\.ptx:2: the header has a launch line already"):
            parse_header(twice * 2, "k.ptx", Path())
        with pytest.raises(UsageError, match=r"k\.ptx:2: argument 'n' is given twice"):
            parse_header("// arg: n u32 = 1\n" * 2, "k.ptx", Path())


class TestOption:
    def test_buffer(self) -> None:
        spec = parse_spec("x=f32[8]:iota % 3")
        assert (spec.name, spec.type.token, spec.count) == ("x", "f32", 8)
        assert list(spec.make()) == [0, 1, 2, 0, 1, 2, 0, 1]

    def test_position_instead_of_a_name(self) -> None:
        spec = parse_spec("u32[2]:where(iota == 1, 7, 8)")
        assert spec.name is None
        assert list(spec.make()) == [8, 7]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("n=u32:1000", np.uint32(1000)),
            ("s8:-1", np.int8(-1)),
            ("u8:-1", np.uint8(255)),
            ("f32:0.1", np.float32(0.1)),
            ("bf16:1", np.uint16(0x3F80)),
            ("u64:0xffffffffffffffff", np.uint64(0xFFFF_FFFF_FFFF_FFFF)),
        ],
    )
    def test_scalar(self, text: str, expected: np.generic) -> None:
        value = parse_spec(text).make()
        assert type(value) is type(expected)
        assert value == expected

    def test_undefined_buffer(self) -> None:
        spec = parse_spec("y=f32[16]:undef")
        assert spec.undefined
        assert spec.make().shape == (16,)

    def test_each_call_makes_a_buffer_of_its_own(self) -> None:
        spec = parse_spec("y=u32[2]:zeros")
        first = spec.make()
        first[:] = 9
        assert list(spec.make()) == [0, 0]

    @pytest.mark.parametrize("text", ["", "=", "x=", "x=u32", "u32[", "u32[4", "x=:1", "[4]:iota"])
    def test_unreadable(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"cannot read this argument|unknown type"):
            parse_spec(text)

    def test_file_of_a_folder(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([1, 2], np.uint32))
        assert list(parse_spec("u32[2]:@x.npy", tmp_path).make()) == [1, 2]

"""``format_text``: canonical layout, every comment kept, in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import FILES

from ptxsim.errors import PtxError
from ptxsim.syntax import format_text, parse

WRITTEN = """\
// launch: grid=1  block=32
// second

/* block
   two */
.version 9.0 // v
.target sm_90
# 1 "file"
// before entry
.visible .entry k( // head
   .param .u64 p, // first
   // own line
   .param .u64 q
) // close
.maxntid 32 // tuning
{ // open
   // decl
   .reg .b32 %r<3>; // regs


   L: // label
   mov.b32 %r1, /* inline */ 5; // five
   { // nested
     add.s32   %r1,%r1,1;
     // end nested
   } // closed
   .pragma "a // b"; ret;
   // last
} // end
// tail
"""

FORMATTED = """\
// launch: grid=1  block=32
// second

/* block
   two */
.version 9.0  // v
.target sm_90
# 1 "file"
// before entry
.visible .entry k(  // head
	.param .u64 p,  // first
	// own line
	.param .u64 q
)  // close
.maxntid 32  // tuning
{  // open
	// decl
	.reg .b32 %r<3>;  // regs

L:  // label
	mov.b32 %r1, 5;  /* inline */  // five
	{  // nested
		add.s32 %r1, %r1, 1;
		// end nested
	}  // closed
	.pragma "a // b";
	ret;
	// last
}  // end
// tail
"""


def test_layout_and_comments() -> None:
    assert format_text(WRITTEN) == FORMATTED


def test_formatted_text_stays() -> None:
    assert format_text(FORMATTED) == FORMATTED
    assert parse(FORMATTED) == parse(WRITTEN)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path: Path) -> None:
    text = path.read_text()
    formatted = format_text(text)
    assert parse(formatted) == parse(text)
    assert format_text(formatted) == formatted


def test_only_comments() -> None:
    assert format_text("// a\n  // b\n") == "// a\n// b\n"
    assert format_text("") == ""


def test_wrong_text_is_refused() -> None:
    with pytest.raises(PtxError):
        format_text(".version")

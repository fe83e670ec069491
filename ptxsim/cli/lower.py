"""``ptxsim lower``: PTX for a tile-level description, from the package ``lowering``.

ptxsim does not depend on ``lowering``: the package is looked up when the command runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from ..errors import UsageError
from .files import read_text, write_text

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "PTX for a tile copy, a kernel of cooperative matrices, or a matrix product"
DESCRIPTION = "Turn a tile-level description into PTX whose correctness is proved by simulation."

_COPY = (
    "Copy a tile between registers and shared memory. The kernel stages 'src' element by element"
    " into the side that the copy reads and the other side into 'dst', both in logical row-major"
    " order, so that 'dst' must equal 'src'. Exit code 1 and a table of reasons if no variant fits."
)
_COOPMAT = (
    "Lower a kernel with cooperative-matrix statements, in the text form of its IR, to PTX that"
    " traps where an address or a stride is not aligned. Exit code 1 and every refusal with its"
    " code and line if something cannot be lowered, 3 if the text is no kernel."
)
_MATMUL = (
    "Lower a matrix product to a kernel with a circular buffer of cp.async, whose residue tile goes"
    " first. The buffers are 'a', 'b' (seeded) and 'c' (undefined), row-major as the layout letters"
    " say. Exit code 1 and the reason if an axis cannot be peeled as asked."
)
_EXAMPLE = (
    "example: ptxsim lower copy --register 'S[(8,4,4,2):(4@laneid,1@laneid,2,1)]'"
    " --shared 'S[(8,4,4,2):(32,2,8,1)]' | ptxsim run -"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", title="lowerings", required=True)
    _add_copy(kinds)
    _add_coopmat(kinds)
    _add_matmul(kinds)


def _add_copy(kinds: Any) -> None:
    sub = kinds.add_parser(
        "copy", help="a tile copy", description=_COPY, epilog=_EXAMPLE, allow_abbrev=False
    )
    add = sub.add_argument
    add("--register", metavar="LAYOUT", required=True, help="S[extents:strides] with thread axes")
    add("--shared", metavar="LAYOUT", required=True,
        help="S[extents:strides], or swizzle(p,b,a) o S[...]")  # fmt: skip
    add("--dtype", default="f16", metavar="TYPE", help="the element type (f16)")
    add("--scope", default="warp", help="who copies: warp, warpgroup or cta (warp)")
    add("--threads", type=int, metavar="N", help="threads of the CTA, for --scope cta")
    add("--direction", default="ld", metavar="ld|st",
        help="ld: shared memory to registers; st: registers to shared memory (ld)")  # fmt: skip
    add("--target", default="sm_90", metavar="SM", help="the target (sm_90)")
    add("--align", type=int, metavar="N", help="alignment in bytes of the shared array (1024)")
    add("--variant", metavar="NAME", help="try only this variant: ldstmatrix or reg")
    add("--faithful", action="store_true", help="ldstmatrix by the rule and order of TVM")
    how = sub.add_mutually_exclusive_group()
    how.add_argument("--body-only", action="store_true", help="print the copy without a kernel")
    how.add_argument("--explain", action="store_true",
                     help="print the decision: structure, addresses, bank conflicts")  # fmt: skip
    add("--svg", metavar="FILE", help="also draw both layouts; to '-' only the picture is written")


def _add_coopmat(kinds: Any) -> None:
    sub = kinds.add_parser(
        "coopmat", help="a kernel of cooperative matrices", description=_COOPMAT, allow_abbrev=False
    )
    add = sub.add_argument
    add("file", metavar="FILE", help="the kernel as text, '-' for standard input")
    add("--target", default="sm_80", metavar="SM", help="the target (sm_80)")
    add("--ptx", metavar="X.Y", help="the PTX ISA version (8.0, or the first that has the target)")
    add("--block", metavar="X[,Y[,Z]]", help="the thread block, where the kernel does not say it")
    add("--via", default="wmma", metavar="wmma|mma",
        help="the instructions: wmma, or ldmatrix and mma.sync from sm_80 on (wmma)")  # fmt: skip
    add("--rule", default="ptx", metavar="ptx|cuda",
        help="what is tested before an access: all that the PTX ISA demands, or the alignment rule"
        " of the CUDA C++ guide (ptx)")  # fmt: skip
    add("--faithful", action="store_true", help="refuse what the original lowering does not lower")
    add("--explain", action="store_true",
        help="print which tests were planted where, and which were proved needless")  # fmt: skip


def _add_matmul(kinds: Any) -> None:
    sub = kinds.add_parser(
        "matmul", help="a matrix product", description=_MATMUL, allow_abbrev=False
    )
    add = sub.add_argument
    for size in ("--m", "--n"):
        add(size, type=int, required=True, metavar="N", help="rows of c" if size == "--m" else
            "columns of c")  # fmt: skip
    add("--k", required=True, metavar="N[xN]",
        help="what is summed over: one extent, or those of two axes")  # fmt: skip
    add("--batch", type=int, metavar="N", help="matrices, along a leading axis of each buffer")
    add("--dtype", default="f16", metavar="TYPE", help="f16, bf16, tf32, f32 or s8 (f16)")
    add("--layout", default="NN", metavar="XY",
        help="N: a[m,k], b[k,n]; T: a[k,m], b[n,k] (NN)")  # fmt: skip
    for operand in "abc":
        add(f"--ld{operand}", type=int, metavar="N",
            help=f"elements from one row of {operand} to the next (dense)")  # fmt: skip
    add("--tile", default="128,128,32", metavar="M,N,K", help="the tile of a CTA (128,128,32)")
    add("--warps", default="2,2", metavar="M,N", help="warps along M and N (2,2)")
    add("--stages", type=int, default=3, metavar="S", help="slots of the circular buffer, 1-6 (3)")
    add("--peel", default="on", metavar="on|off|aligned",
        help="the residue tile goes first, in order or keeping vectors aligned (on)")  # fmt: skip
    add("--fill", default="zfill", metavar="zfill|explicit",
        help="zeros of the residue by the copies, or by stores (zfill)")  # fmt: skip
    add("--split-k", type=int, default=1, metavar="N", help="parts of K with results of their own")
    add("--symbolic", metavar="LETTERS", help="sizes that the launch gives, such as m,n,k")
    add("--multiple", action="append", default=[], metavar="X=N",
        help="what a size of the launch is a multiple of, such as k=8; repeatable")  # fmt: skip
    add("--target", default="sm_80", metavar="SM", help="the target (sm_80)")
    add("--ptx", metavar="X.Y", help="the PTX ISA version (8.0, or the first that has the target)")
    add("--explain", action="store_true",
        help="print the loop nest before and after, the timeline and the cost")  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    lowering = _lowering()
    if args.what == "coopmat":
        args.name, args.text = read_text(args.file)
    answer = getattr(lowering, args.what)(args)
    if answer.picture is not None:
        write_text(args.svg, answer.picture)
    sys.stdout.write(answer.output)
    sys.stderr.write(answer.error)
    return int(answer.code)


def _lowering() -> Any:
    """The module that does the work."""
    try:
        return importlib.import_module("lowering.cli")
    except ModuleNotFoundError as error:
        if error.name not in ("lowering", "lowering.cli"):
            raise
        raise UsageError(
            "the package 'lowering' is not installed; it comes with a checkout of ptxsim"
        ) from None

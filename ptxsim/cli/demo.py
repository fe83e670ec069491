"""``ptxsim demo``: writes a few small kernels and runs them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..errors import UsageError

__all__ = ["DESCRIPTION", "HELP", "KERNELS", "add_arguments", "execute"]

HELP = "write a few small kernels, faulty and correct, and run them"
DESCRIPTION = "Write three kernels into a folder and run them. Existing files are kept."

_SAXPY = """\
// y = a * x + y, one element a thread. This kernel is correct.
// launch: grid=4 block=64
// arg:    x f32[250] = iota
// arg:    y f32[250] = ones
// arg:    a f32 = 2
// arg:    n u32 = 250
.version 8.0
.target sm_80
.address_size 64

.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<5>;
    .reg .pred %p;

    mov.u32         %r0, %ctaid.x;
    mov.u32         %r1, %ntid.x;
    mov.u32         %r2, %tid.x;
    mad.lo.u32      %r3, %r0, %r1, %r2;
    ld.param.u32    %r4, [n];
    setp.ge.u32     %p, %r3, %r4;
@%p bra             done;
    ld.param.u64    %rd0, [x];
    ld.param.u64    %rd1, [y];
    mul.wide.u32    %rd2, %r3, 4;
    add.u64         %rd3, %rd0, %rd2;
    add.u64         %rd4, %rd1, %rd2;
    ld.global.f32   %f0, [%rd3];
    ld.global.f32   %f1, [%rd4];
    ld.param.f32    %f2, [a];
    fma.rn.f32      %f3, %f2, %f0, %f1;
    st.global.f32   [%rd4], %f3;
done:
    ret;
}
"""

_LDMATRIX = """\
// The rows of an 8x8 tile are padded to 24 bytes. ldmatrix wants rows that start at multiples of
// 16 bytes; every second one does not.
// launch: grid=1 block=32
// arg:    out u32[32] = undef
.version 8.0
.target sm_80
.address_size 64

.visible .entry tile(.param .u64 out)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    .shared .align 16 .b8 rows[512];

    mov.u32         %r0, %tid.x;
    mov.u32         %r1, rows;
    shl.b32         %r2, %r0, 4;
    add.u32         %r2, %r1, %r2;
    st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0};
    bar.sync        0;
    and.b32         %r3, %r0, 7;
    mad.lo.u32      %r3, %r3, 24, %r1;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];
    ld.param.u64    %rd0, [out];
    mul.wide.u32    %rd1, %r0, 4;
    add.u64         %rd2, %rd0, %rd1;
    st.global.u32   [%rd2], %r4;
    ret;
}
"""

_SHUFFLE = """\
// Half of a warp shuffles and names all 32 lanes in the mask; the other half waits further down.
// launch: grid=1 block=32
// arg:    out u32[32] = zeros
.version 8.0
.target sm_80
.address_size 64

.visible .entry exchange(.param .u64 out)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .reg .pred %p;

    mov.u32         %r0, %tid.x;
    mov.u32         %r1, %r0;
    setp.ge.u32     %p, %r0, 16;
@%p bra             together;
    shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffffffff;
together:
    bar.warp.sync   0xffffffff;
    ld.param.u64    %rd0, [out];
    mul.wide.u32    %rd1, %r0, 4;
    add.u64         %rd2, %rd0, %rd1;
    st.global.u32   [%rd2], %r1;
    ret;
}
"""

#: The kernels by file, each with its text and the verdict that it leads to.
KERNELS = {
    "saxpy.ptx": (_SAXPY, "clean"),
    "misaligned-ldmatrix.ptx": (_LDMATRIX, "misaligned-shared"),
    "shuffle-in-branch.ptx": (_SHUFFLE, "mask-mismatch"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", nargs="?", default="ptxsim-demo", metavar="DIR")


def execute(args: argparse.Namespace) -> int:
    """Run the command: 0 if every kernel came out as announced, otherwise 1."""
    from .main import main

    folder = Path(args.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}") from None
    surprises = []
    for name, (text, verdict) in KERNELS.items():
        path = folder / name
        _write(path, text)
        print(f"\n$ ptxsim run {path}", flush=True)
        code = main(["run", str(path)])
        if code != (0 if verdict == "clean" else 1):
            surprises.append(f"{path}: exit code {code} where '{verdict}' was expected")
    print()
    for line in surprises:
        print(line)
    if not surprises:
        print(f"One is clean and two are faulty, as announced; look at the files in {folder}.")
    return 1 if surprises else 0


def _write(path: Path, text: str) -> None:
    from .files import write_text

    if os.path.lexists(path):
        print(f"keeping {path}, which is there already")
        return
    write_text(str(path), text)
    print(f"wrote {path}")

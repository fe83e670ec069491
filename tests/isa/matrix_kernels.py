"""Small kernels whose parameters are buffers, for the tests of matrix instructions."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

import ptxsim

__all__ = ["group", "load_fragment", "run", "store_fragment", "unmodelled"]


def run(
    body: str,
    *buffers: NDArray[Any],
    block: int = 32,
    declare: str = "",
    head: str = ".version 8.0\n.target sm_90\n",
) -> ptxsim.Report:
    """Run ``body`` with pointers ``%b<i>`` to the buffers, ``%t`` = tid, ``%mine`` = 16 * tid."""
    parameters = ", ".join(f".param .u64 p{i}" for i in range(len(buffers)))
    pointers = "".join(f"ld.param.u64 %b{i}, [p{i}];\n" for i in range(len(buffers)))
    text = (
        f"{head}.address_size 64\n.visible .entry k({parameters})\n{{\n"
        ".reg .pred %p<4>; .reg .b32 %r<64>, %f<64>, %t; .reg .f32 %c<32>;\n"
        f".reg .b64 %b<{len(buffers) + 1}>, %d<8>, %mine;\n{declare}\n{pointers}"
        f"mov.u32 %t, %tid.x; mul.wide.u32 %mine, %t, 16;\n{body}\nret;\n}}\n"
    )
    return ptxsim.assemble(text).kernel().launch(grid=1, block=block, args=list(buffers))


def group(prefix: str, count: int, first: int = 0) -> str:
    """A brace group of consecutive registers."""
    return "{" + ", ".join(f"%{prefix}{first + k}" for k in range(count)) + "}"


def load_fragment(buffer: int, prefix: str, count: int, first: int = 0) -> str:
    """Load ``count`` words of this thread from a buffer of [thread, count]."""
    lines = [f"mul.wide.u32 %d0, %t, {4 * count}; add.u64 %d0, %d0, %b{buffer};"]
    lines += [f"ld.global.b32 %{prefix}{first + k}, [%d0+{4 * k}];" for k in range(count)]
    return "\n".join(lines)


def store_fragment(buffer: int, prefix: str, count: int, first: int = 0) -> str:
    """The inverse of :func:`load_fragment`."""
    lines = [f"mul.wide.u32 %d0, %t, {4 * count}; add.u64 %d0, %d0, %b{buffer};"]
    lines += [f"st.global.b32 [%d0+{4 * k}], %{prefix}{first + k};" for k in range(count)]
    return "\n".join(lines)


def unmodelled(line: str, declare: str, head: str) -> tuple[str, ...]:
    """The codes of the diagnostics for one instruction."""
    text = f"{head}.address_size 64\n.visible .entry k()\n{{\n{declare}\n{line}\nret;\n}}\n"
    return tuple(d.code for d in ptxsim.assemble(text).diagnostics)

"""A small way to run a kernel body: parameters ``out`` and ``in_`` are buffers of u32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ptxsim

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
PROLOGUE = """\
.visible .entry k(.param .u64 out_p, .param .u64 in_p)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<32>, %t;
    .reg .b64 %rd<16>, %out, %in, %mine;
    {declare}
    ld.param.u64 %out, [out_p];
    ld.param.u64 %in, [in_p];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %mine, %t, 4, %out;
{body}
    ret;
}}
"""

SCHEDULES = ("default", "reverse", "warp-serial", "random:1", "random:2")


@pytest.fixture
def run() -> Callable[..., tuple[ptxsim.Report, Any]]:
    def launch(
        body: str,
        *,
        block: int = 32,
        grid: int = 1,
        declare: str = "",
        before: str = "",
        out: Any = None,
        data: Any = None,
        **options: Any,
    ) -> tuple[ptxsim.Report, Any]:
        out = np.zeros(block * grid, np.uint32) if out is None else out
        data = np.arange(64, dtype=np.uint32) if data is None else data
        text = HEAD + before + PROLOGUE.format(declare=declare, body=body)
        kernel = ptxsim.assemble(text).kernel()
        report = kernel.launch(grid=grid, block=block, args=[out, data], **options)
        return report, out

    return launch

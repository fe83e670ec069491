"""Stand-ins for a GPU: the simulator, told to do some things differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ptxsim
from ptxsim.agreement import Backend, Shape, simulator
from ptxsim.api import Kernel

__all__ = ["bits_changed", "rewritten"]


def rewritten(edit: Callable[[str], str]) -> Backend:
    """A machine that takes one instruction for another: the text is changed before it runs."""

    def launch(kernel: Kernel, args: Sequence[Any], shape: Shape) -> ptxsim.Report:
        text = edit(kernel.source.text)
        assert text != kernel.source.text
        other = ptxsim.assemble(text, kernel.module.target, kernel.source.name)
        return simulator(other.kernel(kernel.name), args, shape)

    return launch


def bits_changed(position: int, change: Callable[[Any], None]) -> Backend:
    """A machine whose result in one argument is changed after the launch, as unsigned words."""

    def launch(kernel: Kernel, args: Sequence[Any], shape: Shape) -> ptxsim.Report:
        report = simulator(kernel, args, shape)
        array = args[position].reshape(-1)
        change(array.view(np.dtype(f"u{array.itemsize}")))
        return report

    return launch

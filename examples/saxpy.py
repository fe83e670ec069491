"""Launch saxpy.ptx from Python and compare with NumPy."""

from pathlib import Path

import numpy as np

import ptxsim

x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
kernel = ptxsim.assemble(Path(__file__).with_name("saxpy.ptx")).kernel("saxpy")
report = kernel.launch(grid=4, block=256, args=[x, y, np.float32(2), np.uint32(1000)])
report.raise_for_findings()
print((y == 2 * x + 1).all(), report.verdict, report.counters["thread_instructions"])

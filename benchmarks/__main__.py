"""``python -m benchmarks``: a table of speeds; nothing here passes or fails on a time."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .cases import CASES, KERNELS, Case
from .measure import Measured, calibrate, command, measure, parse_rate
from .tensor_unit import AIM_US, INSTRUCTIONS, time_instruction

__all__ = ["main"]

OTHERS = ("tensor", "parse", "start-up")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for, print it; 1 if a kernel's result is not the reference's."""
    options = _options(argv)
    names = options.only or [*(case.name for case in CASES), *OTHERS]
    report: dict[str, Any] = {"python": platform.python_version(), "numpy": np.__version__}
    chosen = [case for case in CASES if case.name in names]
    rows: list[Measured] = []
    if chosen:
        report["calibration"] = calibrate()
        say = not options.json
        if say:
            print(_head(report))
        for case in chosen:
            rows.append(_measured(case, options.repeat, report["calibration"], say))
        report["kernels"] = [{**asdict(r), "ratio": _rate(r) / report["calibration"]} for r in rows]
    if "tensor" in names:
        timed = [time_instruction(i, options.repeat) for i in INSTRUCTIONS]
        report["tensor"] = [
            {**asdict(t), "ratio": t.ratio, "us_per_tile": t.us_per_tile} for t in timed
        ]
    if "parse" in names:
        report["parse"] = dict(
            zip(("characters", "parse_s", "assemble_s"), parse_rate(), strict=True)
        )
    if "start-up" in names:
        report["start_up"] = {
            "version_s": command(["--version"], options.repeat),
            "smallest_run_s": command(["run", str(KERNELS / "smallest.ptx")], options.repeat),
        }
    print(json.dumps(report, indent=1) if options.json else _tail(report))
    return 0 if all(r.exact for r in rows) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [*(case.name for case in CASES), *OTHERS]
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=names,
        help=f"measure only this, repeatable: {', '.join(names)}",
    )  # fmt: skip
    parser.add_argument("--repeat", type=int, default=3, help="timed runs, the best counts (3)")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    options = parser.parse_args(argv)
    if options.repeat < 1:
        parser.error("--repeat is at least 1")
    return options


def _rate(row: Measured) -> float:
    return row.thread_instructions / row.seconds


def _head(report: dict[str, Any]) -> str:
    return (
        f"Python {report['python']}, NumPy {report['numpy']}, {os.cpu_count()} processors; "
        f"calibration loop {report['calibration'] / 1e6:.0f} M element operations/s\n"
        f"{'kernel':20} {'thread-instr':>13} {'seconds':>8} {'M/s':>7} {'ratio':>6}"
        f" {'checks':>6} {'peak MiB':>8}  result"
    )


def _measured(case: Case, repeat: int, calibration: float, say: bool) -> Measured:
    row = measure(case, repeat)
    if say:
        peak = "-" if row.peak_mib is None else f"{row.peak_mib:.0f}"
        rate = _rate(row)
        print(
            f"{row.name:20} {row.thread_instructions:13,} {row.seconds:8.3f} {rate / 1e6:7.1f}"
            f" {rate / calibration:6.3f} {row.seconds / row.unchecked_seconds:5.1f}x {peak:>8}"
            f"  {'exact' if row.exact else 'WRONG'}",
            flush=True,
        )
    return row


def _tail(report: dict[str, Any]) -> str:
    lines = []
    for row in report.get("tensor", []):
        lines.append(
            f"tensor   {row['name']} at 1,024 warps: {row['milliseconds']:.1f} ms,"
            f" {row['ratio']:.1f} x numpy.add of as many int64 ({row['add_milliseconds']:.2f} ms;"
            f" bound {row['bound']:.0f} x), {row['us_per_tile']:.1f} us a tile (aim {AIM_US:.0f})"
        )
    if parse := report.get("parse"):
        kilobytes = parse["characters"] / 1000
        lines.append(
            f"parse    {kilobytes:.0f} KB in {parse['parse_s']:.2f} s:"
            f" {kilobytes / parse['parse_s']:.0f} KB/s; assembled in {parse['assemble_s']:.2f} s:"
            f" {kilobytes / parse['assemble_s']:.0f} KB/s"
        )
    if start := report.get("start_up"):
        lines.append(
            f"start-up --version {start['version_s']:.3f} s,"
            f" smallest run {start['smallest_run_s']:.3f} s"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

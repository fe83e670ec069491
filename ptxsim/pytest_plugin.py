"""The pytest plugin: the fixture ``ptx_launch``, its options and its marker.

pytest loads it by itself where ptxsim is installed; from a checkout ``-p ptxsim.pytest_plugin``
does.  Nothing else of ptxsim imports it, and so ptxsim does not need pytest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .diagnostics import Severity, did_you_mean
from .errors import PtxError, UsageError

if TYPE_CHECKING:
    from .api import Module
    from .cli.elements import ElementType
    from .diagnostics import Source
    from .report import Finding, Report

__all__ = [
    "PtxLaunch",
    "ptx_launch",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
]

# --- hooks ----------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("ptxsim", "PTX kernels on the simulator")
    group.addoption(
        "--ptxsim-schedules", type=int, default=0, metavar="N",
        help="repeat launches of ptx_launch on adverse and N random schedules and compare buffers",
    )  # fmt: skip
    group.addoption(
        "--ptxsim-gpu", action="store_true",
        help="repeat each launch of ptx_launch on the GPU and compare the bits of the buffers",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse options that cannot be carried out."""
    config.addinivalue_line(
        "markers", "ptxsim_gpu: the test needs a GPU; it is skipped without --ptxsim-gpu"
    )
    if config.getoption("--ptxsim-gpu"):
        reason = _no_gpu()
        if reason:
            raise pytest.UsageError(f"--ptxsim-gpu: {reason}")
    if config.getoption("--ptxsim-schedules") < 0:
        raise pytest.UsageError("--ptxsim-schedules is a number that is not negative")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests that need a GPU, with the reason, unless ``--ptxsim-gpu`` is given."""
    marked = [item for item in items if item.get_closest_marker("ptxsim_gpu") is not None]
    if not marked or config.getoption("--ptxsim-gpu"):
        return
    reason = _no_gpu() or "needs a GPU: run with --ptxsim-gpu"
    for item in marked:
        item.add_marker(pytest.mark.skip(reason=reason))


def _no_gpu() -> str:
    """Why there is no GPU, or an empty string."""
    from .device import probe

    found = probe()
    return "" if found.available else f"no GPU: {found.reason}"


# --- the fixture ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def ptx_launch(pytestconfig: pytest.Config) -> PtxLaunch:
    """A function that launches a kernel on the simulator and fails the test on its findings."""
    option = pytestconfig.getoption
    return PtxLaunch(option("--ptxsim-schedules"), option("--ptxsim-gpu"))


class PtxLaunch:
    """Launches kernels for tests; the value of the fixture ``ptx_launch``.

    ``schedules`` is how many random schedules each launch is repeated on, after adverse ones;
    ``gpu`` says whether it is repeated on the GPU.
    """

    def __init__(self, schedules: int = 0, gpu: bool = False) -> None:
        self._schedules = schedules
        self._gpu = gpu
        self._modules: dict[tuple[str, str, str | None], Module] = {}

    def __call__(
        self,
        ptx: str | Path,
        *,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        entry: str | None = None,
        target: str | None = None,
        expect: str | Sequence[str] = (),
        schedules: int | None = None,
        gpu: bool | None = None,
        **launch: Any,
    ) -> Report:
        """Launch a kernel of a PTX text, or of the file at a path, and judge it.

        ``expect`` names the classes of findings that must appear; any other error fails the test
        with the findings as text.  ``schedules`` replaces ``--ptxsim-schedules``, ``gpu`` replaces
        ``--ptxsim-gpu``: a launch without an error is repeated on the GPU, in a process of its own,
        and the buffers must have the same bits.  ``launch`` are further keywords of
        :meth:`ptxsim.Kernel.launch`, such as ``tools`` and ``smem``.
        :class:`PtxError` if the PTX is invalid.
        """
        __tracebackhide__ = True
        from .cli.exploration import further_schedules

        try:
            wanted = _classes(expect)
            module = self._assembled(ptx, target)
            kernel = module.kernel(entry)
            count = self._schedules if schedules is None else schedules
            on_gpu = self._gpu if gpu is None else gpu
            untouched = _copies(args) if count or on_gpu else []
            launch |= {"grid": grid, "block": block}
            report = kernel.launch(args=args, **launch)
            _judge(report, module.source, wanted - {"schedule-dependent"})
            first = launch.get("schedule", "default")
            for schedule in further_schedules(count, first):
                again = {**launch, "schedule": schedule}
                other = kernel.launch(args=_copies(untouched), **again)
                judged = wanted - {"schedule-dependent"}
                _judge(other, module.source, judged, f"with schedule {schedule}")
                different = _differences(report, other, (first, schedule))
                if different:
                    report.findings = (*report.findings, *different)
                    break
            _judge(report, module.source, wanted)
            if on_gpu and report.clean:
                other = kernel.launch(args=untouched, **{**launch, "backend": "gpu"})
                _judge(other, module.source, frozenset(), "on the GPU")
                report.findings = (*report.findings, *_mismatches(report, other))
                _judge(report, module.source, frozenset())
        except (PtxError, UsageError) as error:
            # where in ptxsim this was noticed says nothing to the author of the test
            raise error.with_traceback(None) from None
        return report

    def _assembled(self, ptx: str | Path, target: str | None) -> Module:
        """The module of a text, assembled once a session."""
        from .cli.check import assemble_text
        from .cli.files import read_text

        name, text = "<string>", str(ptx)
        if isinstance(ptx, Path) or ("\n" not in text and text.endswith(".ptx")):
            name, text = read_text(text)
        key = name, text, target
        if key not in self._modules:
            self._modules[key] = assemble_text(text, name, target)
        return self._modules[key]


def _classes(expect: str | Sequence[str]) -> frozenset[str]:
    """Classes that are given by name or code; a name that no finding has is a usage error."""
    from .report import FINDING_CODES

    names = {code: class_ for class_, code in FINDING_CODES.items()}
    words = [names.get(w, w) for w in ([expect] if isinstance(expect, str) else expect)]
    for word in words:
        if word not in FINDING_CODES:
            hint = did_you_mean(word, FINDING_CODES) or "ptxsim explain lists all of them"
            raise UsageError(f"expect: no class of findings '{word}'; {hint}")
    return frozenset(words)


def _copies(args: Sequence[Any]) -> list[Any]:
    """The arguments as they were; an array that was passed twice still is one."""
    known: dict[int, Any] = {}
    return [known.setdefault(id(a), _copy(a)) for a in args]


def _copy(value: Any) -> Any:
    """An argument that a launch may change, as it was."""
    import numpy as np

    if isinstance(value, np.ndarray):
        out = value.copy("K")  # keeps the subclass, which may be that of undefined bytes
        out.flags.writeable = value.flags.writeable
        return out
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return np.from_dlpack(value).copy()
    return value


def _judge(report: Report, source: Source, wanted: frozenset[str], where: str = "") -> None:
    """Fail the test on errors that are not wanted, and on findings that are and do not appear."""
    __tracebackhide__ = True
    errors = [f.class_ for f in report.findings if f.severity is Severity.ERROR]
    missing = wanted - {f.class_ for f in report.findings}
    if not missing and wanted.issuperset(errors):
        return
    from .cli.render import render_report

    head = f"ptxsim reports {', '.join(dict.fromkeys(errors)) or 'no error'}"
    if missing:
        head = f"expected {', '.join(sorted(missing))}; {head}"
    if where:
        head += f" {where}"
    raise AssertionError(f"{head}\n{render_report(report, source, 'full').rstrip()}")


def _differences(first: Report, other: Report, schedules: tuple[str, str]) -> list[Finding]:
    """Findings of the buffers that clean launches on two schedules leave with different bits."""
    from .cli.exploration import differs_by_schedule

    if not (first.clean and other.clean):
        return []
    found = [
        differs_by_schedule(name, one, two, element, schedules)
        for name, one, two, element in _pairs(first, other)
    ]
    return [f for f in found if f is not None]


def _mismatches(simulated: Report, gpu: Report) -> list[Finding]:
    """Findings of the buffers that have other bits after a launch on the GPU."""
    from .cli.compare import compare

    device = gpu.device or {}
    origin = f"those of the GPU ({device.get('name')})"
    found = [compare(*parts, origin) for parts in _pairs(simulated, gpu)]
    return [f for f in found if f is not None]


def _pairs(got: Report, base: Report) -> Iterator[tuple[str, Any, Any, ElementType]]:
    """Name, array of one launch, array of the other, and element type of each buffer."""
    import numpy as np

    from .cli.elements import ELEMENT_TYPES

    for name, output in base.outputs.items():
        pair = [np.asarray(o.array) for o in (got.outputs[name], output)]
        element = ELEMENT_TYPES.get(output.dtype)
        if element is None:  # structures and the like are compared as bytes
            element = ELEMENT_TYPES["u8"]
            pair = [array.reshape(-1).view(np.uint8) for array in pair]
        yield name, pair[0], pair[1], element

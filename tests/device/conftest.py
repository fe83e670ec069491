"""A fake GPU for this process and for those that it starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .fake_driver import FakeDriver

FakeGpu = Callable[..., FakeDriver]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Installs a fake driver that behaves as its options say."""

    def install(**options: Any) -> FakeDriver:
        driver = FakeDriver(**options)
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)  # type: ignore[arg-type]
        monkeypatch.setenv("FAKE_CUDA", json.dumps(options))
        monkeypatch.setattr(sys, "path", [str(Path(__file__).parent / "fake"), *sys.path])
        return driver

    return install


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the bindings of the driver are not installed."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

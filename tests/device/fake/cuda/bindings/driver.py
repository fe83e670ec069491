"""The driver of a process that a test starts: a fake, told by ``FAKE_CUDA`` how to behave."""

import json
import os
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[3] / "fake_driver.py"


def _load() -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("fake_driver", _FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FakeDriver(**json.loads(os.environ["FAKE_CUDA"]))


_DRIVER = _load()


def __getattr__(name: str) -> Any:
    return getattr(_DRIVER, name)

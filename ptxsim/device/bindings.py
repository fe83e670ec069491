"""The functions of the CUDA driver by name, loaded when they are first needed, and their errors."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Driver", "DriverError", "load"]

_MODULE = "cuda.bindings.driver"


class DriverError(Exception):
    """The driver refused a call; ``name`` is that of the error, such as ``CUDA_ERROR_...``."""

    def __init__(self, function: str, name: str, text: str) -> None:
        self.function = function
        self.name = name
        self.text = text
        super().__init__(f"{function}: {name} ({text})" if text else f"{function}: {name}")


class Driver:
    """The driver; ``module`` is ``cuda.bindings.driver`` or what behaves like it."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def constant(self, kind: str, name: str) -> Any:
        """A member of an enumeration of the driver, such as ``CUdevice_attribute``."""
        return getattr(getattr(self.module, kind), name)

    def call(self, function: str, *args: Any) -> Any:
        """The result of a call, None or a tuple where there is not exactly one."""
        try:
            status, *values = getattr(self.module, function)(*args)
        except ValueError as error:  # a driver that is newer than the bindings
            raise DriverError(function, "an error without a name", str(error)) from None
        if int(status):
            raise DriverError(function, status.name, self._describe(status))
        return values[0] if len(values) == 1 else tuple(values) or None

    def _describe(self, status: Any) -> str:
        known, text = self.module.cuGetErrorString(status)
        return "" if int(known) or not text else text.decode("utf-8", "replace")


def load() -> Driver:
    """The driver of this machine; :class:`ImportError` where its Python bindings are absent.

    The bindings look for the driver's own library at the first call.
    """
    return Driver(importlib.import_module(_MODULE))

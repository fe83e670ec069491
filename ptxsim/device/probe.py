"""Is there a GPU?  Says which, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .bindings import Driver, DriverError, load

__all__ = ["DeviceInfo", "Probe", "probe"]

#: What the bindings raise where the driver's library is absent or too old for a function.
_ABSENT = (AttributeError, OSError, RuntimeError)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A GPU; ``driver`` is the CUDA version that its driver supports, such as ``13.0``."""

    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    driver: str

    @property
    def target(self) -> str:
        """The target that it is, such as ``sm_90``."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    def to_json(self) -> dict[str, Any]:
        """The GPU as an object of the JSON report."""
        return {
            "ordinal": self.ordinal,
            "name": self.name,
            "compute_capability": list(self.compute_capability),
            "driver": self.driver,
        }

    def __str__(self) -> str:
        return f"{self.name} ({self.target}, driver for CUDA {self.driver})"


@dataclass(frozen=True, slots=True)
class Probe:
    """What there is: ``reason`` says why no GPU can be used, and is empty if one can."""

    available: bool
    reason: str
    devices: tuple[DeviceInfo, ...] = ()


def probe(driver: Driver | None = None) -> Probe:
    """Look for GPUs; never raises.  Only the driver is asked, nothing is allocated on a GPU."""
    try:
        driver = driver or load()
        driver.call("cuInit", 0)
        version = int(driver.call("cuDriverGetVersion"))
        count = int(driver.call("cuDeviceGetCount"))
        devices = tuple(_device(driver, n, version) for n in range(count))
    except ImportError:
        return _none("cuda-python is not installed (pip install cuda-python)")
    except DriverError as error:
        return _none(f"the driver finds no GPU that can be used: {error}")
    except _ABSENT as error:
        return _none(f"the CUDA driver cannot be loaded: {_line(error)}")
    if not devices:
        return _none("the driver finds no GPU")
    return Probe(True, "", devices)


def _none(reason: str) -> Probe:
    return Probe(False, reason)


def _line(error: BaseException) -> str:
    """The first line of an error's text, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _device(driver: Driver, ordinal: int, version: int) -> DeviceInfo:
    device = driver.call("cuDeviceGet", ordinal)
    name = driver.call("cuDeviceGetName", 256, device)
    major, minor = (
        int(driver.call("cuDeviceGetAttribute", driver.constant("CUdevice_attribute", f), device))
        for f in (
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
        )
    )
    text = name.split(b"\0")[0].decode("utf-8", "replace")
    return DeviceInfo(ordinal, text, (major, minor), f"{version // 1000}.{version % 1000 // 10}")

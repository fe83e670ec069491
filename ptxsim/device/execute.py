"""One launch in this process: context, module, buffers, launch, wait, results.

Everything runs on the default stream, so that what an earlier launch of the process left behind is
noticed before the next one, and never taken for a fault of the next one.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

from ..targets import parse_target
from .bindings import Driver, DriverError
from .faults import fault, timeout
from .memory import DeviceMemory
from .module import Refused, load_module
from .probe import DeviceInfo, probe
from .request import Request, Result

__all__ = ["execute"]

#: Dynamic shared memory that needs no leave.
_USUAL_SHARED = 48 << 10
#: CTAs of a cluster that every GPU with clusters can run.
_PORTABLE_CLUSTER = 8
_DEFAULT_STREAM = 0


def execute(driver: Driver, request: Request) -> Result:
    """Carry out a launch; what cannot be carried out is a refusal in the result."""
    found = probe(driver)
    if not found.available:
        return Result(refusal=found.reason)
    if request.ordinal >= len(found.devices):
        return Result(refusal=f"there is no GPU {request.ordinal}; there are {len(found.devices)}")
    info = found.devices[request.ordinal]
    reason = _wrong_target(request.target, info)
    if reason:
        return Result(info, refusal=reason)
    try:
        device = driver.call("cuDeviceGet", info.ordinal)
        context = driver.call("cuDevicePrimaryCtxRetain", device)
        driver.call("cuCtxSetCurrent", context)
        if not _wait(driver, request.timeout, "cuStreamQuery", _DEFAULT_STREAM):
            return Result(info, refusal="the GPU is still busy with an earlier launch of this "
                          "process; launch with isolate=True")  # fmt: skip
    except DriverError as error:
        return Result(info, refusal=f"the GPU cannot be used by this process ({error}); an earlier"
                      " fault may have cost it its context: launch with isolate=True")  # fmt: skip
    result = _in_context(driver, request, device)
    result.device = info
    if not result.hung:
        _quietly(driver, "cuDevicePrimaryCtxRelease", device)
    return result


def _wrong_target(text: str, info: DeviceInfo) -> str:
    """Why a GPU cannot run code for a target, or an empty string."""
    target = parse_target(text)
    number = 10 * info.compute_capability[0] + info.compute_capability[1]
    if target is None:
        return ""
    fits = {
        "": number >= target.number,
        "a": number == target.number,
        "f": number >= target.number and number // 10 == target.number // 10,
    }[target.suffix]
    return "" if fits else f"the PTX is for {text}, which {info} cannot run"


def _in_context(driver: Driver, request: Request, device: Any) -> Result:
    try:
        module = load_module(driver, request.text)
    except Refused as refused:
        reason = "" if refused.diagnostics else refused.reason
        return Result(refusal=reason, diagnostics=refused.diagnostics)
    try:
        memory = DeviceMemory(driver, request.buffers)
    except DriverError as error:
        return Result(refusal=f"the buffers do not fit on the GPU: {error}")
    try:
        _start(driver, request, module, device, memory.addresses)
    except DriverError as error:
        result = _failed(error, "the GPU cannot make this launch")
    else:
        result = _finish(driver, request, memory)
    if not result.hung:
        _clean_up(driver, module, memory)
    return result


def _finish(driver: Driver, request: Request, memory: DeviceMemory) -> Result:
    """Wait for the kernel and fetch the buffers."""
    try:
        event_flags = int(driver.constant("CUevent_flags", "CU_EVENT_DISABLE_TIMING"))
        event = driver.call("cuEventCreate", event_flags)
        driver.call("cuEventRecord", event, _DEFAULT_STREAM)
        if not _wait(driver, request.timeout, "cuEventQuery", event):
            return Result(findings=(timeout(request.timeout),), stopped=True, hung=True)
        driver.call("cuEventDestroy", event)
        # text that the kernel prints comes out of the driver here
        driver.call("cuStreamSynchronize", _DEFAULT_STREAM)
        buffers, findings = memory.download()
    except DriverError as error:
        return _failed(error, "the GPU failed")
    return Result(buffers=buffers, findings=tuple(findings))


def _failed(error: DriverError, what: str) -> Result:
    """The result of a launch that ended with an error."""
    found = fault(error)
    if found is None:
        return Result(refusal=f"{what}: {error}")
    return Result(findings=(found,), stopped=True)


def _start(
    driver: Driver, request: Request, module: Any, device: Any, addresses: list[int]
) -> None:
    function = driver.call("cuModuleGetFunction", module, request.entry.encode())
    size = request.cluster[0] * request.cluster[1] * request.cluster[2]
    allow = [("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", request.smem)]
    allow = allow if request.smem > _USUAL_SHARED else []
    if size > _PORTABLE_CLUSTER:
        allow.append(("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1))
    for name, value in allow:
        attribute = driver.constant("CUfunction_attribute", name)
        driver.call("cuFuncSetAttribute", function, attribute, value)
    values = [
        ctypes.create_string_buffer(
            addresses[a].to_bytes(8, "little") if isinstance(a, int) else a,
            8 if isinstance(a, int) else max(len(a), 1),
        )
        for a in request.arguments
    ]
    places = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(v) for v in values))
    config = _config(driver, request, size)
    driver.call("cuLaunchKernelEx", config, function, ctypes.addressof(places), 0)


def _config(driver: Driver, request: Request, cluster_size: int) -> Any:
    config = driver.module.CUlaunchConfig()
    for name, shape in (("grid", request.grid), ("block", request.block)):
        for axis, count in zip("XYZ", shape, strict=True):
            setattr(config, f"{name}Dim{axis}", count)
    config.sharedMemBytes = request.smem
    config.hStream = driver.module.CUstream(_DEFAULT_STREAM)
    attributes = []
    if cluster_size > 1:
        attribute = driver.module.CUlaunchAttribute()
        attribute.id = driver.constant(
            "CUlaunchAttributeID", "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
        )
        for axis, count in zip("xyz", request.cluster, strict=True):
            setattr(attribute.value.clusterDim, axis, count)
        attributes.append(attribute)
    if request.cooperative:
        attribute = driver.module.CUlaunchAttribute()
        attribute.id = driver.constant("CUlaunchAttributeID", "CU_LAUNCH_ATTRIBUTE_COOPERATIVE")
        attribute.value.cooperative = 1
        attributes.append(attribute)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def _wait(driver: Driver, seconds: float, query: str, what: Any) -> bool:
    """Ask until it is done, or the time is over (False).  Asking never blocks."""
    end = time.monotonic() + seconds
    pause = 20e-6
    while True:
        try:
            driver.call(query, what)
            return True
        except DriverError as error:
            if error.name != "CUDA_ERROR_NOT_READY":
                raise
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 5e-3)


def _clean_up(driver: Driver, module: Any, memory: DeviceMemory) -> None:
    """Give back what the launch took; after a fault the driver refuses this as well."""
    try:
        memory.free()
        driver.call("cuModuleUnload", module)
    except DriverError:
        return


def _quietly(driver: Driver, function: str, *args: Any) -> None:
    try:
        driver.call(function, *args)
    except DriverError:
        return

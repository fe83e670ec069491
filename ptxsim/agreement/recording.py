"""Answers of a machine in a file: what was launched, on what, and what came out.

Small outputs are kept whole, of large ones a hash and samples.  A file that is read is not trusted:
every field is checked, and no number in it makes us allocate more than the limits here.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from ..errors import UsageError
from ..report import Report

__all__ = [
    "Device",
    "RecordedArgument",
    "RecordedOutput",
    "Recording",
    "Reference",
    "device_of",
    "digest",
    "from_json",
    "load",
    "output_of",
    "to_json",
]

Array = NDArray[Any]
FORMAT = 1
#: Bytes of an output that is kept whole; samples of a larger one.
WHOLE, SAMPLES = 1 << 16, 1024
#: Limits of what is read: the file, one buffer, entries of a list, a string.
_FILE, _BUFFER, _ENTRIES, _STRING = 64 << 20, 2 << 30, 4352, 1 << 24
_DATA = 64 << 20
#: Names end up in words of the command line, where other characters would mean something.
_NAME = re.compile(r"[A-Za-z_$%][\w$]*", re.ASCII)
_DTYPES = {
    **{f"{kind}{8 * size}": f"{code}{size}" for kind, code in (("u", "u"), ("s", "i"), ("b", "u"))
       for size in (1, 2, 4, 8)},
    "f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8", "e4m3": "u1", "e5m2": "u1",
}  # fmt: skip

Dimensions = tuple[int, int, int]


def digest(data: bytes | str) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


@dataclass(frozen=True, slots=True)
class Device:
    """The machine that answered; the capability is empty for one that is no GPU."""

    name: str
    compute_capability: tuple[int, ...]
    driver: str


@dataclass(frozen=True, slots=True)
class RecordedArgument:
    """An argument: its initial value as SPEC text (``init``), or as bytes.

    ``count`` is None for what is passed by value.
    """

    name: str
    type: str
    count: int | None
    init: str | None
    data: bytes | None
    sha256: str

    @property
    def spec(self) -> str:
        """The words of the command line, without the initial value if there are only bytes."""
        length = "" if self.count is None else f"[{self.count}]"
        return f"{self.name}={self.type}{length}:{self.init or ''}"


@dataclass(frozen=True, slots=True)
class RecordedOutput:
    """A buffer after the launch: all its bytes, or the elements at ``places``."""

    type: str
    count: int
    sha256: str
    data: bytes
    places: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """One launch and the answer to it.  ``ptx`` is the text where it stands in no file."""

    entry: str
    target: str
    ptx_sha256: str
    grid: Dimensions
    block: Dimensions
    cluster: Dimensions | None
    smem: int
    arguments: tuple[RecordedArgument, ...]
    outputs: Mapping[str, RecordedOutput]
    device: Device
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    ptx: str | None = None

    def reference(self, name: str) -> Reference:
        """What is known of an output."""
        return Reference.of(self.outputs[name])


@dataclass(frozen=True, slots=True)
class Reference:
    """Elements of an output that are known: all, or those at ``places``."""

    elements: Array
    places: Array | None
    sha256: str

    @staticmethod
    def of(output: RecordedOutput) -> Reference:
        """The elements of a recorded output."""
        elements = np.frombuffer(output.data, _DTYPES[output.type])
        places = None if output.places is None else np.array(output.places, np.int64)
        return Reference(elements, places, output.sha256)

    def over(self, array: Array) -> Array:
        """An array with the elements that are known put in their places."""
        if self.places is None:
            return self.elements.reshape(array.shape)
        out = array.copy()
        out.reshape(-1)[self.places] = self.elements
        return out


def device_of(report: Report) -> Device:
    """The machine that made a launch."""
    told = report.to_json().get("device")
    if told is None:
        return Device(f"ptxsim {__version__}", (), "")
    return Device(told["name"], tuple(told["compute_capability"]), told["driver"])


def output_of(type_: str, array: Array) -> RecordedOutput:
    """What is kept of an output."""
    flat = np.ascontiguousarray(array).reshape(-1)
    whole = flat.tobytes()
    if len(whole) <= WHOLE:
        return RecordedOutput(type_, flat.size, digest(whole), whole)
    places = np.unique(np.linspace(0, flat.size - 1, SAMPLES).astype(np.int64))
    kept = flat[places].tobytes()
    return RecordedOutput(type_, flat.size, digest(whole), kept, tuple(int(p) for p in places))


# --- writing --------------------------------------------------------------------------------------


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def to_json(r: Recording) -> dict[str, Any]:
    """The recording as an object of JSON; :func:`from_json` is the inverse."""
    out: dict[str, Any] = {
        "ptxsim_recording": FORMAT,
        "entry": r.entry, "target": r.target, "ptx_sha256": r.ptx_sha256,
        "grid": list(r.grid), "block": list(r.block),
        "cluster": None if r.cluster is None else list(r.cluster), "smem": r.smem,
        "arguments": [_argument_json(a) for a in r.arguments],
        "outputs": {name: _output_json(o) for name, o in r.outputs.items()},
        "device": {
            "name": r.device.name, "driver": r.device.driver,
            "compute_capability": list(r.device.compute_capability),
        },
        "date": r.date,
    }  # fmt: skip
    if r.ptx is not None:
        out["ptx"] = _packed(r.ptx.encode())
    return out


def _argument_json(a: RecordedArgument) -> dict[str, Any]:
    out: dict[str, Any] = {"name": a.name, "type": a.type, "count": a.count, "sha256": a.sha256}
    if a.init is not None:
        out["init"] = a.init
    if a.data is not None:
        out["data"] = _packed(a.data)
        out["bytes"] = len(a.data)
    return out


def _output_json(o: RecordedOutput) -> dict[str, Any]:
    out: dict[str, Any] = {
        "type": o.type, "count": o.count, "sha256": o.sha256, "data": _packed(o.data),
    }  # fmt: skip
    if o.places is not None:
        out["places"] = list(o.places)
    return out


# --- reading --------------------------------------------------------------------------------------


def load(path: str | Path) -> Recording:
    """The recording in a file; :class:`UsageError` says what is wrong with it."""
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE + 1)
        if len(data) > _FILE:
            raise UsageError(f"{path}: more than {_FILE >> 20} MiB are no recording")
        tree = json.loads(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"cannot read {path}: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON: {error}") from None
    return from_json(tree, str(path))


def from_json(tree: Any, where: str) -> Recording:
    """The recording in an object of JSON."""
    top = _Object(tree, where)
    version = top.integer("ptxsim_recording", 1, 1 << 30)
    if version != FORMAT:
        raise UsageError(f"{where}: a recording of format {version}; this version reads {FORMAT}")
    device = top.object("device")
    capability = device.integers("compute_capability", 0, 1000, most=2)
    text = top.packed("ptx", _DATA) if "ptx" in top.tree else None
    try:
        ptx = None if text is None else text.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{where}: ptx is not UTF-8 text") from None
    found = Recording(
        entry=top.name("entry"),
        target=top.string("target"),
        ptx_sha256=top.hash("ptx_sha256"),
        grid=top.dimensions("grid"),
        block=top.dimensions("block"),
        cluster=None if top.tree.get("cluster") is None else top.dimensions("cluster"),
        smem=top.integer("smem", 0, 1 << 20),
        arguments=tuple(_read_argument(o) for o in top.objects("arguments")),
        outputs={name: _read_output(o) for name, o in top.named("outputs")},
        device=Device(device.string("name"), capability, device.string("driver")),
        date=top.string("date"),
        ptx=ptx,
    )
    if ptx is not None and digest(ptx) != found.ptx_sha256:
        raise UsageError(f"{where}: ptx does not have the hash ptx_sha256")
    names = [a.name for a in found.arguments]
    for name, output in found.outputs.items():
        match = [a for a in found.arguments if a.name == name and a.count is not None]
        if len(match) != 1 or names.count(name) != 1:
            raise UsageError(f"{where}: output '{name}' is no argument with a length")
        if (match[0].type, match[0].count) != (output.type, output.count):
            raise UsageError(f"{where}: output '{name}' is not of the argument's type and length")
    return found


def _read_argument(o: _Object) -> RecordedArgument:
    type_ = o.element_type()
    size = np.dtype(_DTYPES[type_]).itemsize
    count = None if o.tree.get("count") is None else o.integer("count", 1, _BUFFER // size)
    init = o.string("init") if "init" in o.tree else None
    if init is not None and "@" in init:
        raise UsageError(f"{o.where}: init names a file; a recording holds what was in it as data")
    data = None
    if "data" in o.tree:
        length = o.integer("bytes", 1, _DATA)
        if count is not None and length != count * size:
            raise UsageError(f"{o.where}: {length} bytes are not {count} elements of {type_}")
        data = o.packed("data", length, exactly=True)
        if digest(data) != o.hash("sha256"):
            raise UsageError(f"{o.where}: data does not have the hash sha256")
    if (init is None) == (data is None):
        raise UsageError(f"{o.where}: one of init and data is needed")
    return RecordedArgument(o.name("name"), type_, count, init, data, o.hash("sha256"))


def _read_output(o: _Object) -> RecordedOutput:
    type_ = o.element_type()
    size = np.dtype(_DTYPES[type_]).itemsize
    count = o.integer("count", 1, _BUFFER // size)
    places = None
    known = count
    if o.tree.get("places") is not None:
        places = o.integers("places", 0, count - 1, most=SAMPLES)
        if list(places) != sorted(set(places)) or not places:
            raise UsageError(f"{o.where}: places are indices in rising order")
        known = len(places)
    if known * size > _DATA:
        raise UsageError(f"{o.where}: {known * size} bytes are too many for a whole output")
    data = o.packed("data", known * size, exactly=True)
    sha256 = o.hash("sha256")
    if places is None and digest(data) != sha256:
        raise UsageError(f"{o.where}: data does not have the hash sha256")
    return RecordedOutput(type_, count, sha256, data, places)


class _Object:
    """An object of JSON whose fields are read with their types."""

    def __init__(self, tree: Any, where: str) -> None:
        if not isinstance(tree, dict):
            raise UsageError(f"{where}: an object is expected")
        self.tree: dict[str, Any] = tree
        self.where = where

    def _get(self, name: str, kind: type, what: str) -> Any:
        value = self.tree.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UsageError(f"{self.where}: {name} must be {what}")
        return value

    def string(self, name: str) -> str:
        value: str = self._get(name, str, "a string")
        if len(value) > 4096 or not value.isprintable():
            raise UsageError(f"{self.where}: {name} is too long, or not printable")
        return value

    def name(self, name: str) -> str:
        value = self.string(name)
        if not _NAME.fullmatch(value):
            raise UsageError(f"{self.where}: {name} is no name of PTX")
        return value

    def hash(self, name: str) -> str:
        value: str = self._get(name, str, "a hash")
        if not re.fullmatch("[0-9a-f]{64}", value):
            raise UsageError(f"{self.where}: {name} must be 64 hexadecimal digits")
        return value

    def integer(self, name: str, least: int, most: int) -> int:
        value: int = self._get(name, int, "a whole number")
        if not least <= value <= most:
            raise UsageError(f"{self.where}: {name} is {least} to {most}, not {value}")
        return value

    def integers(self, name: str, least: int, greatest: int, most: int) -> tuple[int, ...]:
        values: list[Any] = self._get(name, list, "a list of whole numbers")
        if len(values) > most:
            raise UsageError(f"{self.where}: {name} has more than {most} entries")
        if any(type(v) is not int or not least <= v <= greatest for v in values):
            raise UsageError(f"{self.where}: {name} holds whole numbers of {least} to {greatest}")
        return tuple(values)

    def dimensions(self, name: str) -> Dimensions:
        values = self.integers(name, 1, (1 << 31) - 1, most=3)
        if len(values) != 3:
            raise UsageError(f"{self.where}: {name} has three entries")
        x, y, z = values
        return x, y, z

    def element_type(self) -> str:
        value = self.string("type")
        if value not in _DTYPES:
            raise UsageError(f"{self.where}: unknown type '{value}'")
        return value

    def object(self, name: str) -> _Object:
        return _Object(self.tree.get(name), f"{self.where}: {name}")

    def objects(self, name: str) -> list[_Object]:
        values: list[Any] = self._get(name, list, "a list")
        if len(values) > _ENTRIES:
            raise UsageError(f"{self.where}: {name} has more than {_ENTRIES} entries")
        return [_Object(v, f"{self.where}: {name}[{n}]") for n, v in enumerate(values)]

    def named(self, name: str) -> list[tuple[str, _Object]]:
        values: dict[str, Any] = self._get(name, dict, "an object")
        if len(values) > _ENTRIES:
            raise UsageError(f"{self.where}: {name} has more than {_ENTRIES} entries")
        return [(key, _Object(v, f"{self.where}: {name}.{key[:80]}")) for key, v in values.items()]

    def packed(self, name: str, length: int, exactly: bool = False) -> bytes:
        """Compressed bytes: at most, or exactly, as many as ``length``."""
        text: str = self._get(name, str, "compressed bytes in base 64")
        try:
            packed = base64.b64decode(text, validate=True)
            unpack = zlib.decompressobj()
            data = unpack.decompress(packed, length + 1)
        except (binascii.Error, ValueError, zlib.error) as error:
            raise UsageError(f"{self.where}: {name} cannot be unpacked: {error}") from None
        if len(data) > length or not unpack.eof or (exactly and len(data) != length):
            raise UsageError(
                f"{self.where}: {name} does not hold the {length} bytes that it should"
            )
        return data

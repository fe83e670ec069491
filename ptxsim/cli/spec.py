"""Arguments of a kernel as SPEC words: on the command line and in the header of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .elements import ELEMENT_TYPES, ElementType
from .evaluate import MAX_BYTES, evaluate
from .expression import Node, Number, Unary, Word, parse_expression

__all__ = ["Spec", "parse_header_spec", "parse_spec"]

NAME = r"[A-Za-z_$%][\w$]*"

_TYPED = r"(?P<type>[A-Za-z]\w*)\s*(?:\[\s*(?P<count>\w*)\s*\])?"
_OPTION = re.compile(
    rf"\s*(?:(?P<name>{NAME})\s*=)?\s*{_TYPED}\s*:(?P<init>.*)", re.ASCII | re.DOTALL
)
_HEADER = re.compile(rf"\s*(?P<name>{NAME})\s+{_TYPED}\s*=(?P<init>.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spec:
    """One argument: a buffer of ``count`` elements, or a scalar if ``count`` is None.

    ``name`` is None for an argument that is given by its position; ``folder`` is where its files
    are; ``where`` names the place of the text for messages.
    """

    name: str | None
    type: ElementType
    count: int | None
    init: Node
    folder: Path
    where: str
    #: the text of ``init``
    text: str = ""

    @property
    def undefined(self) -> bool:
        """Whether the buffer is allocated without being defined."""
        return self.init == Word("undef")

    def make(self) -> Any:
        """The argument as ``kernel.launch`` takes it: an array, or a NumPy scalar."""
        try:
            if self.count is None:
                return evaluate(self.init, self.type, 1, self.folder)[0]
            if self.undefined:
                from .. import undefined

                return undefined(self.count, self.type.dtype)
            return evaluate(self.init, self.type, self.count, self.folder)
        except UsageError as error:
            raise UsageError(f"{self.where}: {error}") from None


def parse_spec(text: str, folder: Path = Path(), where: str = "") -> Spec:
    """The SPEC of an option: ``[NAME=]TYPE[COUNT]:INIT`` or ``[NAME=]TYPE:INIT``."""
    return _parse(
        _OPTION, text, folder, where or f"--arg {text}",
        "x=f32[1024]:iota for a buffer, or n=u32:1000 for a scalar",
    )  # fmt: skip


def parse_header_spec(text: str, folder: Path, where: str) -> Spec:
    """The SPEC of a header line: ``NAME TYPE[COUNT] = INIT`` or ``NAME TYPE = INIT``."""
    return _parse(
        _HEADER, text, folder, where,
        "'x f32[1024] = iota' for a buffer, or 'n u32 = 1000' for a scalar",
    )  # fmt: skip


def _parse(pattern: re.Pattern[str], text: str, folder: Path, where: str, example: str) -> Spec:
    match = pattern.fullmatch(text)
    if match is None:
        raise UsageError(f"{where}: cannot read this argument; write {example}")
    token = match["type"]
    if token not in ELEMENT_TYPES:
        raise UsageError(f"{where}: unknown type '{token}'; known: {', '.join(ELEMENT_TYPES)}")
    type_ = ELEMENT_TYPES[token]
    count = None if match["count"] is None else _count(match["count"], type_, where)
    if not match["init"].strip():
        raise UsageError(f"{where}: the initial value is missing; write {example}")
    try:
        init = parse_expression(match["init"].strip())
        _check_literal(init, type_)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    if count is None and init in (Word("undef"), Word("iota")):
        raise UsageError(
            f"{where}: a scalar needs a value, '{match['init'].strip()}' is for buffers"
        )
    return Spec(match["name"], type_, count, init, folder, where, match["init"].strip())


def _count(text: str, type_: ElementType, where: str) -> int:
    if not text.isdecimal() or len(text) > 12 or int(text) == 0:
        raise UsageError(f"{where}: the length '{text}' is not a positive number")
    count = int(text)
    if count * type_.size > MAX_BYTES:
        raise UsageError(
            f"{where}: {count} elements of {type_} are {count * type_.size} bytes;"
            f" at most {MAX_BYTES} are allowed"
        )
    return count


def _check_literal(node: Node, type_: ElementType) -> None:
    """Refuse a number written out that the type does not hold; results of arithmetic wrap."""
    sign = 1
    while isinstance(node, Unary) and node.operator in "+-":
        sign = -sign if node.operator == "-" else sign
        node = node.operand
    if type_.kind == "f" or not isinstance(node, Number):
        return
    value, bits = sign * node.value, 8 * type_.size
    if isinstance(value, float):
        raise UsageError(f"{value} is no value of {type_}")
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise UsageError(f"{value} does not fit {type_}")

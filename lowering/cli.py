"""The work of ``ptxsim lower``: it answers with texts and an exit code, and writes nothing."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ptxsim.diagnostics import did_you_mean
from ptxsim.errors import UsageError
from ptxsim.targets import TARGETS

from .circular import DTYPES as MATMULS
from .circular import Matmul, Scheme, lower_matmul
from .coopmat import Refused, TextError, lower_coopmat
from .coopmat import parse as parse_kernel
from .copy import COPY_VARIANTS, DTYPES, SCOPES, Copy, Lowered, lower_copy
from .copy.explain import advice, explain
from .copy.picture import copy_svg
from .copy.problem import MAX_ALIGN
from .dispatch import Declined
from .layout import LayoutError, parse, parse_tile

__all__ = ["Answer", "coopmat", "copy", "matmul"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Text for standard output and for standard error, a picture, and the exit code."""

    output: str = ""
    picture: str | None = None
    error: str = ""
    code: int = 0


def copy(args: Namespace) -> Answer:
    """``ptxsim lower copy``: the copy between two layouts, or the table of reasons against it."""
    problem = _problem(args)
    try:
        lowered = lower_copy(
            problem.register, problem.shared, dtype=problem.dtype, scope=problem.scope,
            direction=problem.direction, target=problem.target, threads=problem.threads,
            align=problem.align, variant=args.variant, faithful=args.faithful,
        )  # fmt: skip
        text = _text(lowered, args)
    except Declined as declined:
        more = advice(problem) if args.explain else ""
        missing = "" if args.svg is None else "no picture: the copy is declined\n"
        return Answer(error=f"{declined}\n{missing}{more}", code=1)
    except LayoutError as error:
        raise UsageError(str(error)) from None
    picture = copy_svg(lowered) if args.svg is not None else None
    return Answer(text, picture)


def coopmat(args: Namespace) -> Answer:
    """``ptxsim lower coopmat``: the kernel as PTX, or all refusals."""
    try:
        kernel = parse_kernel(args.text)
        lowered = lower_coopmat(
            kernel, target=args.target, version=_version(args.ptx), block=_block(args.block),
            via=args.via, rule=args.rule, faithful=args.faithful,
        )  # fmt: skip
    except TextError as error:
        place = f"{args.name}:{error.line}:{error.column}"
        return Answer(error=f"{place}: error: {error.message}\n", code=3)
    except Refused as refused:
        rows = [f"{args.name}:{max(r.line, 1)}: refused: {r.text}" for r in refused.refusals]
        return Answer(error="\n".join(rows) + "\n", code=1)
    return Answer(lowered.explain() if args.explain else lowered.text())


def matmul(args: Namespace) -> Answer:
    """``ptxsim lower matmul``: the kernel of a matrix product as PTX, or why it is declined."""
    try:
        lowered = lower_matmul(_product(args), _version(args.ptx))
    except Declined as declined:
        return Answer(error=f"{declined}\n", code=1)
    return Answer(lowered.explain() if args.explain else lowered.text())


def _product(args: Namespace) -> Matmul:
    """The matrix product that the options describe."""
    _known("--dtype", args.dtype, MATMULS)
    _known("--peel", args.peel, ("on", "off", "aligned"))
    _known("--fill", args.fill, ("zfill", "explicit"))
    _known("--target", args.target, TARGETS)
    ks = _numbers("--k", args.k, (1, 2), "x")
    m, n, k = _numbers("--tile", args.tile, (3,))
    rows, columns = _numbers("--warps", args.warps, (2,))
    symbolic = frozenset(args.symbolic.split(",")) if args.symbolic else frozenset()
    if symbolic - set("mnk"):
        raise UsageError(f"--symbolic {args.symbolic}: letters of m, n and k are needed")
    spec = Matmul(
        args.m, args.n, ks[0] if len(ks) == 1 else (ks[0], ks[1]), (m, n, k), (rows, columns),
        args.stages, args.dtype, args.layout.upper(), args.batch, split_k=args.split_k,
        symbolic=symbolic, multiples=_multiples(args.multiple), target=args.target,
        scheme=Scheme(args.peel, args.fill),
    )  # fmt: skip
    rows_of = {"a": args.lda, "b": args.ldb, "c": args.ldc}
    strides = {name: spec.padded(name, ld) for name, ld in rows_of.items() if ld is not None}
    return replace(spec, strides=strides)


def _multiples(words: Iterable[str]) -> dict[str, int]:
    found = {}
    for word in words:
        match = re.fullmatch(r"([mnk])=(\d{1,6})", word, re.ASCII)
        if match is None or int(match[2]) < 1:
            raise UsageError(f"--multiple {word}: a size and a number such as k=8 are needed")
        found[match[1]] = int(match[2])
    return found


def _numbers(option: str, text: str, counts: tuple[int, ...], mark: str = ",") -> list[int]:
    words = text.split(mark)
    if len(words) not in counts or not all(re.fullmatch(r"\d{1,12}", w, re.ASCII) for w in words):
        want = " or ".join(map(str, counts))
        raise UsageError(f"{option} {text}: {want} numbers with '{mark}' between are needed")
    return [int(word) for word in words]


def _version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,2})\.(\d{1,2})", text, re.ASCII)
    if found is None:
        raise UsageError(f"--ptx {text}: a version such as 8.0 is needed")
    return int(found[1]), int(found[2])


def _block(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})(?:,(\d{1,6}))?(?:,(\d{1,6}))?", text, re.ASCII)
    if found is None:
        raise UsageError(f"--block {text}: one to three numbers such as 32,4 are needed")
    x, y, z = (int(n or 1) for n in found.groups())
    return x, y, z


def _text(lowered: Lowered, args: Namespace) -> str:
    if args.svg == "-":  # the picture alone
        return ""
    if args.explain:
        return explain(lowered)
    return lowered.body() if args.body_only else lowered.kernel().text()


def _problem(args: Namespace) -> Copy:
    """The copy that the options describe; :class:`UsageError` if they make no sense."""
    _known("--dtype", args.dtype, DTYPES)
    _known("--scope", args.scope, SCOPES)
    _known("--direction", args.direction, ("ld", "st"))
    _known("--target", args.target, TARGETS)
    if args.variant is not None:
        _known("--variant", args.variant, [v.name for v in COPY_VARIANTS])
    if args.svg == "-" and args.explain:
        raise UsageError("--svg - writes the picture alone; name a file to have --explain too")
    if args.faithful and args.variant == "reg":
        raise UsageError("--faithful is about ldstmatrix; leave it out with --variant reg")
    if args.threads is not None and args.scope != "cta":
        raise UsageError("--threads is the size of a CTA; use it with --scope cta")
    if args.threads is None and args.scope == "cta":
        raise UsageError("--scope cta needs the number of threads: --threads N")
    if args.threads is not None and (args.threads % 32 or not 32 <= args.threads <= 1024):
        raise UsageError(f"--threads {args.threads}: a CTA has 32 to 1024 threads in whole warps")
    align = 1024 if args.align is None else args.align
    if not 1 <= align <= MAX_ALIGN or align & (align - 1):
        raise UsageError(f"--align {align}: a power of two, 1 to {MAX_ALIGN}, is needed")
    try:
        register = parse_tile(args.register)
    except LayoutError as error:
        raise UsageError(f"--register: {error}") from None
    try:
        shared = parse(args.shared)
    except LayoutError as error:
        raise UsageError(f"--shared: {error}") from None
    return Copy(
        register, shared, args.dtype, args.scope, args.direction, args.target,
        args.threads or 0, align,
    )  # fmt: skip


def _known(option: str, word: str, words: Iterable[str]) -> None:
    names = list(words)
    if word not in names:
        hint = did_you_mean(word, names) or f"there are: {', '.join(names)}"
        raise UsageError(f"{option}: no '{word}'; {hint}")

"""The text form of the kernel IR: ``parse(to_text(kernel)) == kernel``.

kernel scale(a: float16[], n: int32) block(32, 1, 1) {
  shared tile: float16[256];
  fragment x: a 16x16x16 f16;
  let base: int32 = block_idx_x * 256;
  load x (a 16x16x16 f16) from a[base] stride n row;
  ...
}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, Tree, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.tree import Meta

from .ir import (
    BINARY,
    ELEMENTS,
    INTRINSICS,
    SCALARS,
    Array,
    Assign,
    Barrier,
    Binary,
    Block,
    Cast,
    Const,
    Constant,
    Element,
    Expression,
    For,
    FragmentDecl,
    FragmentLoad,
    FragmentStore,
    If,
    Intrinsic,
    Kernel,
    Length,
    Let,
    Local,
    MulAdd,
    Param,
    Return,
    Shared,
    Statement,
    Store,
    Unary,
    Var,
    While,
)
from .vocabulary import COMPONENTS, LAYOUTS, SCOPES, USES, Config, Fragment, Shape

__all__ = ["KEYWORDS", "TextError", "expression_text", "parse", "to_text"]

#: Longest text that is read.
MAX_CHARACTERS = 1 << 20
#: Deepest nesting of expressions and blocks.
MAX_DEPTH = 100
#: Deepest tree of operators and blocks.
MAX_NODES = 200

_GRAMMAR = r"""
start: "kernel" NAME "(" [param ("," param)*] ")" [block_shape] "{" array* statement* "}"
block_shape: "block" "(" INT "," INT "," INT ")"
param: NAME ":" NAME [buffer] [align]
buffer: "[" "]"
align: "align" INT
?array: "shared" NAME ":" NAME "[" [INT] "]" ";" -> shared
    | "local" NAME ":" NAME "[" INT "]" ";" -> local
    | "constant" NAME ":" NAME "[" "]" "=" "{" literal ("," literal)* "}" ";" -> constant
literal: [MINUS] (INT | FLOAT)
block: "{" statement* "}"
?statement: "fragment" NAME ":" fragment ";" -> declare
    | "load" NAME "(" fragment ")" "from" NAME "[" expr "]" "stride" expr NAME ";" -> load
    | "store" NAME "(" fragment ")" "to" NAME "[" expr "]" "stride" expr NAME ";" -> store_fragment
    | NAME "=" "muladd" NAME "," NAME "," NAME "(" config ")" ";" -> muladd
    | "let" [MUT] NAME ":" NAME "=" expr ";" -> let
    | NAME "=" expr ";" -> assign
    | NAME "[" expr "]" "=" expr ";" -> store
    | "if" expr block ["else" block] -> if_
    | "for" NAME "=" expr "to" expr block -> for_
    | "while" expr block -> while_
    | "barrier" [NAME] ";" -> barrier
    | "return" ";" -> return_
    | block
fragment: NAME SHAPE NAME [scope]
config: SHAPE NAME "*" NAME "+" NAME "->" NAME [SATURATING] [MODIFIER] [scope]
scope: NAME | QUEUE_FAMILY
?expr: or_
?or_: and_ | or_ "||" and_ -> or_op
?and_: compare | and_ "&&" compare -> and_op
?compare: bits | bits COMPARE bits -> binary
?bits: shift | bits BITS shift -> binary
?shift: sum | shift SHIFT sum -> binary
?sum: product | sum (PLUS | MINUS) product -> binary
?product: unary | product PRODUCT unary -> binary
?unary: atom | (UNARY | MINUS) unary -> unary
?atom: INT -> integer | FLOAT -> number | TYPED -> typed | BOOL -> boolean
    | NAME -> name | NAME "[" expr "]" -> element | "length" "(" NAME ")" -> length
    | NAME "(" expr ")" -> cast | "(" expr ")"
MUT: "mut"
QUEUE_FAMILY.3: "queue-family"
SATURATING: "saturating"
MODIFIER.3: /\b(xor|and|rn|rz|rm|rp)\b/
BOOL.3: /\b(true|false)\b/
SHAPE.3: /\d+x\d+x\d+/
TYPED.3: /\d+(\.\d+)?([eE][-+]?\d+)?(i64|f32|f64)/
FLOAT.2: /\d+\.\d*([eE][-+]?\d+)?/
INT: /\d+/
COMPARE: /==|!=|<=|>=|<(?!<)|>(?!>)/
BITS: /&(?!&)/ | /\|(?!\|)/ | "^"
SHIFT: "<<" | ">>"
PLUS: "+"
PRODUCT: "*" | "/" | "%"
UNARY: "!" | "~"
MINUS: "-"
NAME: /(?!(true|false)\b)[A-Za-z_][A-Za-z0-9_]*/
COMMENT: /#[^\n]*/
%import common.WS
%ignore WS
%ignore COMMENT
"""

_SYMBOLS = {
    "||": "or", "&&": "and", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
    "&": "bitand", "|": "bitor", "^": "bitxor", "<<": "shl", ">>": "shr", "+": "add", "-": "sub",
    "*": "mul", "/": "div", "%": "mod",
}  # fmt: skip
_SPELLED = {op: symbol for symbol, op in _SYMBOLS.items()}
_PREFIX = {"-": "neg", "!": "not", "~": "bitnot"}
_PREFIX_SPELLED = {op: symbol for symbol, op in _PREFIX.items()}
_LEVEL = {
    "or": 1, "and": 2, "eq": 3, "ne": 3, "lt": 3, "le": 3, "gt": 3, "ge": 3, "bitand": 4,
    "bitor": 4, "bitxor": 4, "shl": 5, "shr": 5, "add": 6, "sub": 6, "mul": 7, "div": 7, "mod": 7,
}  # fmt: skip
#: What a caller can promise of the address of a buffer, in bytes.
_ALIGNMENTS = [1 << n for n in range(11)]
#: Words that no name can be.
KEYWORDS = frozenset(
    "barrier constant else false for fragment if length let load local muladd return shared store"
    " true while".split()
)
_SUFFIX = {"int64": "i64", "float32": "f32", "float64": "f64"}
_TYPES = {suffix: name for name, suffix in _SUFFIX.items()}


class TextError(ValueError):
    """A text that is no kernel; ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(f"line {line}, column {column}: {message}")


def _word(token: Token, known: Any, what: str) -> str:
    if token not in known:
        raise TextError(f"no {what} '{token}'; known: {', '.join(known)}", *_place(token))
    return str(token)


def _place(token: Token) -> tuple[int, int]:
    return token.line or 1, token.column or 1


def _finite(token: Token, digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise TextError(f"'{token[:24]}' is larger than any float64", *_place(token))
    return value


def _shape(token: Token) -> Shape:
    m, n, k = (int(part) for part in token.split("x"))
    return Shape(m, n, k)


#: What stands before the statements of a kernel.
_HEAD = (Param, Shared, Local, Constant, tuple)


def _placed(build: Callable[[Any, list[Any]], Any]) -> Any:
    """A callback whose statement is given its line."""

    def placed(self: Any, meta: Meta, children: list[Any]) -> Any:
        return replace(build(self, children), line=getattr(meta, "line", 0))

    return v_args(meta=True)(placed)


class _Builder(Transformer[Token, Any]):
    """Lark's tree as IR."""

    def start(self, c: list[Any]) -> Kernel:
        name, *rest = c
        params = tuple(p for p in rest if isinstance(p, Param))
        arrays = tuple(s for s in rest if isinstance(s, Shared | Local | Constant))
        shape = next((s for s in rest if isinstance(s, tuple)), None)
        body = tuple(s for s in rest if s is not None and not isinstance(s, _HEAD))
        return Kernel(str(name), params, Block(body), arrays, shape)

    def block_shape(self, c: list[Any]) -> tuple[int, ...]:
        return tuple(int(x) for x in c)

    def param(self, c: list[Any]) -> Param:
        name, type_, buffer, align = c
        if buffer is None:
            if align is not None:
                raise TextError(f"'{name}' is no buffer and has no alignment", *_place(name))
            return Param(str(name), _word(type_, SCALARS, "scalar type"))
        return Param(str(name), _word(type_, ELEMENTS, "element type"), True, align or 1)

    def buffer(self, c: list[Any]) -> bool:
        return True

    def align(self, c: list[Any]) -> int:
        if int(c[0]) not in _ALIGNMENTS:
            raise TextError(f"align {c[0]}: a power of two, 1 to 1024, is needed", *_place(c[0]))
        return int(c[0])

    def shared(self, c: list[Any]) -> Shared:
        name, element, size = c
        count = None if size is None else int(size)
        return Shared(str(name), _word(element, ELEMENTS, "element type"), count)

    def local(self, c: list[Any]) -> Local:
        return Local(str(c[0]), _word(c[1], ELEMENTS, "element type"), int(c[2]))

    def constant(self, c: list[Any]) -> Constant:
        name, element, *values = c
        return Constant(str(name), _word(element, ELEMENTS, "element type"), tuple(values))

    def literal(self, c: list[Any]) -> int | float:
        minus, token = c
        value = int(token) if token.type == "INT" else float(token)
        return value if minus is None else -value

    @_placed
    def block(self, c: list[Any]) -> Block:
        return Block(tuple(c))

    @_placed
    def declare(self, c: list[Any]) -> FragmentDecl:
        return FragmentDecl(str(c[0]), c[1])

    @_placed
    def load(self, c: list[Any]) -> FragmentLoad:
        name, fragment, buffer, index, stride, layout = c
        return FragmentLoad(
            str(name), fragment, str(buffer), index, stride, _word(layout, LAYOUTS, "layout")
        )

    @_placed
    def store_fragment(self, c: list[Any]) -> FragmentStore:
        name, fragment, buffer, index, stride, layout = c
        return FragmentStore(
            str(name), fragment, str(buffer), index, stride, _word(layout, LAYOUTS, "layout")
        )

    @_placed
    def muladd(self, c: list[Any]) -> MulAdd:
        target, a, b, added = (str(n) for n in c[:4])
        return MulAdd(target, a, b, added, c[4])

    @_placed
    def let(self, c: list[Any]) -> Let:
        mutable, name, type_, value = c
        return Let(str(name), _word(type_, SCALARS, "type"), value, mutable is not None)

    @_placed
    def assign(self, c: list[Any]) -> Assign:
        return Assign(str(c[0]), c[1])

    @_placed
    def store(self, c: list[Any]) -> Store:
        return Store(str(c[0]), c[1], c[2])

    @_placed
    def if_(self, c: list[Any]) -> If:
        return If(*c)

    @_placed
    def for_(self, c: list[Any]) -> For:
        return For(str(c[0]), *c[1:])

    @_placed
    def while_(self, c: list[Any]) -> While:
        return While(*c)

    @_placed
    def barrier(self, c: list[Any]) -> Barrier:
        return Barrier() if c[0] is None else Barrier(_word(c[0], ("block", "warp"), "barrier"))

    @_placed
    def return_(self, c: list[Any]) -> Return:
        return Return()

    def scope(self, c: list[Any]) -> str:
        return _word(c[0], SCOPES, "scope")

    def fragment(self, c: list[Any]) -> Fragment:
        use, shape, component, scope = c
        return Fragment(
            _word(use, USES, "use"), _shape(shape), _word(component, COMPONENTS, "component"),
            scope or "subgroup",
        )  # fmt: skip

    def config(self, c: list[Any]) -> Config:
        shape, *types, saturating, modifier, scope = c
        a, b, added, result = (_word(t, COMPONENTS, "component") for t in types)
        return Config(
            _shape(shape), a, b, added, result, saturating is not None,
            scope or "subgroup",
            "" if modifier is None else str(modifier),
        )  # fmt: skip

    def binary(self, c: list[Any]) -> Binary:
        return Binary(_SYMBOLS[str(c[1])], c[0], c[2])

    def or_op(self, c: list[Any]) -> Binary:
        return Binary("or", c[0], c[1])

    def and_op(self, c: list[Any]) -> Binary:
        return Binary("and", c[0], c[1])

    def unary(self, c: list[Any]) -> Unary | Const:
        op, operand = _PREFIX[str(c[0])], c[1]
        # the least number, whose absolute value is no number of the type
        if op == "neg" and isinstance(operand, Const):
            if operand.value == {"int32": 1 << 31, "int64": 1 << 63}.get(operand.type):
                return Const(-operand.value, operand.type)
        return Unary(op, operand)

    def integer(self, c: list[Any]) -> Const:
        return Const(int(c[0]))

    def number(self, c: list[Any]) -> Const:
        return Const(_finite(c[0], str(c[0])), "float32")

    def typed(self, c: list[Any]) -> Const:
        text = str(c[0])
        type_ = _TYPES[text[-3:]]
        if type_ == "int64":
            if not text[:-3].isdigit():
                raise TextError(f"'{text[:24]}' is no int64", *_place(c[0]))
            return Const(int(text[:-3]), type_)
        return Const(_finite(c[0], text[:-3]), type_)

    def boolean(self, c: list[Any]) -> Const:
        return Const(str(c[0]) == "true", "bool")

    def name(self, c: list[Any]) -> Intrinsic | Var:
        return Intrinsic(str(c[0])) if c[0] in INTRINSICS else Var(str(c[0]))

    def element(self, c: list[Any]) -> Element:
        return Element(str(c[0]), c[1])

    def length(self, c: list[Any]) -> Length:
        return Length(str(c[0]))

    def cast(self, c: list[Any]) -> Cast:
        return Cast(_word(c[0], SCALARS, "type"), c[1])


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", maybe_placeholders=True, propagate_positions=True)


def parse(text: str) -> Kernel:
    """The kernel that a text spells; :class:`TextError` with its place if there is none."""
    if len(text) > MAX_CHARACTERS:
        raise TextError(f"the text has {len(text)} characters, at most {MAX_CHARACTERS} are read")
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "({[") - (character in ")}]")
        if depth > MAX_DEPTH:
            line = text.count("\n", 0, at) + 1
            raise TextError(f"nested deeper than {MAX_DEPTH} levels", line, 1)
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        ended = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        found = text[error.pos_in_stream or 0 :].split(maxsplit=1)[:1]
        what = "the text ends too early"
        if found and not ended:
            what = f"{found[0][:24]!r} is not expected here"
        raise TextError(what, max(error.line, 1), max(error.column, 1)) from None
    _check_depth(tree)
    try:
        kernel: Kernel = _Builder().transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, TextError):
            raise error.orig_exc from None
        if isinstance(error.orig_exc, ValueError):
            meta = getattr(error.obj, "meta", None)
            place = getattr(meta, "line", 1), getattr(meta, "column", 1)
            raise TextError("a number has too many digits", *place) from None
        raise
    return kernel


def _check_depth(tree: Tree[Token]) -> None:
    """Chains of operators nest too; what walks over the IR afterwards calls itself."""
    level = [tree]
    for _ in range(MAX_NODES):
        level = [c for t in level for c in t.children if isinstance(c, Tree)]
        if not level:
            return
    meta = level[0].meta
    place = getattr(meta, "line", 1), getattr(meta, "column", 1)
    raise TextError(f"nested deeper than {MAX_NODES} levels", *place)


# --- printing -------------------------------------------------------------------------------------


def expression_text(e: Expression, outer: int = 0) -> str:
    """An expression; ``outer`` is the level of the operator around it."""
    match e:
        case Const(value, type_):
            if type_ == "bool":
                return "true" if value else "false"
            if type_ in _SUFFIX:
                return f"{value!r}{_SUFFIX[type_]}"
            return str(value)
        case Var(name) | Intrinsic(name):
            return name
        case Length(buffer):
            return f"length({buffer})"
        case Element(buffer, index):
            return f"{buffer}[{expression_text(index)}]"
        case Cast(type_, operand):
            return f"{type_}({expression_text(operand)})"
        case Unary(op, operand):
            return f"{_PREFIX_SPELLED[op]}{expression_text(operand, 8)}"
        case Binary(op, left, right):
            level = _LEVEL[op]
            beside = level + (op in BINARY[5:11])  # comparisons do not chain
            first, second = expression_text(left, beside), expression_text(right, level + 1)
            text = f"{first} {_SPELLED[op]} {second}"
            return f"({text})" if level < outer else text


def to_text(kernel: Kernel) -> str:
    """A kernel as text."""
    params = ", ".join(map(_param_text, kernel.params))
    shape = "" if kernel.block is None else f" block({', '.join(map(str, kernel.block))})"
    lines = [f"kernel {kernel.name}({params}){shape} {{"]
    lines += [f"  {_array_text(a)}" for a in kernel.arrays]
    lines += [f"  {line}" for s in kernel.body.statements for line in _lines(s)]
    return "\n".join([*lines, "}"]) + "\n"


def _param_text(p: Param) -> str:
    align = f" align {p.align}" if p.align > 1 else ""
    return f"{p.name}: {p.type}{'[]' if p.buffer else ''}{align}"


def _array_text(a: Array) -> str:
    match a:
        case Shared(name, element, size):
            return f"shared {name}: {element}[{'' if size is None else size}];"
        case Local(name, element, size):
            return f"local {name}: {element}[{size}];"
        case Constant(name, element, values):
            return f"constant {name}: {element}[] = {{{', '.join(map(str, values))}}};"


def _lines(s: Statement) -> Iterator[str]:
    e = expression_text
    match s:
        case Let(name, type_, value, mutable):
            yield f"let {'mut ' if mutable else ''}{name}: {type_} = {e(value)};"
        case Assign(name, value):
            yield f"{name} = {e(value)};"
        case Store(buffer, index, value):
            yield f"{buffer}[{e(index)}] = {e(value)};"
        case If(condition, then, other):
            yield from _blocks([(f"if {e(condition)}", then), ("else", other)])
        case For(name, low, high, body):
            yield from _blocks([(f"for {name} = {e(low)} to {e(high)}", body)])
        case While(condition, body):
            yield from _blocks([(f"while {e(condition)}", body)])
        case Barrier(scope):
            yield "barrier;" if scope == "block" else f"barrier {scope};"
        case Return():
            yield "return;"
        case Block():
            yield from _blocks([("", s)])
        case FragmentDecl(name, fragment):
            yield f"fragment {name}: {fragment};"
        case FragmentLoad(name, fragment, buffer, index, stride, layout):
            place = f"{buffer}[{e(index)}] stride {e(stride)} {layout}"
            yield f"load {name} ({fragment}) from {place};"
        case FragmentStore(name, fragment, buffer, index, stride, layout):
            place = f"{buffer}[{e(index)}] stride {e(stride)} {layout}"
            yield f"store {name} ({fragment}) to {place};"
        case MulAdd(target, a, b, c, config):
            yield f"{target} = muladd {a}, {b}, {c} ({config});"


def _blocks(parts: list[tuple[str, Block | None]]) -> Iterator[str]:
    """Heads with their blocks, one after the other: ``if c { ... } else { ... }``."""
    shown = [(head, block) for head, block in parts if block is not None]
    for number, (head, block) in enumerate(shown):
        opening = f"{head} {{".strip()
        yield opening if number == 0 else f"}} {opening}"
        for statement in block.statements:
            yield from (f"  {line}" for line in _lines(statement))
    yield "}"

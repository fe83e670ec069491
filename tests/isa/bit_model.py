"""The rules of integer, bit, comparison, selection, video and move instructions on Python integers.

``RULES[mnemonic](m, values)`` gives the results of one thread: ``m`` maps modifier slots to words
(selectors and signs of operands too), ``values`` are unsigned patterns in operand order, predicates
0 or 1.  Results are cut to their width by the caller.  PTX ISA 9.2, the sections of the mnemonics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import scalar_model as model
from scalar_model import LAYOUTS

__all__ = ["RULES"]

Mods = Mapping[str, str]
Values = Sequence[int]
Results = tuple[int, ...]

WORD = 0xFFFFFFFF


def _width(name: str) -> int:
    return int(name.partition("x")[0].lstrip("busf"))


def _signed(bits: int, width: int) -> int:
    return bits - (bits >> (width - 1) << width)


def _value(bits: int, name: str) -> int:
    """A pattern read by its integer type."""
    width = _width(name)
    bits &= (1 << width) - 1
    return _signed(bits, width) if name[0] == "s" else bits


def _limit(value: int, width: int, signed: bool) -> int:
    low = -(1 << (width - 1)) if signed else 0
    return min(max(value, low), low + (1 << width) - 1)


def _bits(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def _halves(word: int) -> tuple[int, int]:
    return word & 0xFFFF, word >> 16


def _is_float(name: str) -> bool:
    return "f" in name


# --- sums and products ----------------------------------------------------------------------------


def _sum(m: Mods, v: Values, sign: int) -> Results:
    width = _width(m["type"])
    if m.get("cc") or len(v) > 2:
        return _carried(m, v, sign)

    def one(m: Mods, name: str, a: int, b: int) -> int:
        total = _value(a, name) + sign * _value(b, name)
        return _limit(total, width, name[0] == "s") if m.get("sat") else total

    return _elementwise(one, m, v)


def _carried(m: Mods, v: Values, sign: int, reads: bool = False) -> Results:
    """The carry chain: the last value is the flag, the last result the flag afterwards."""
    width = _width(m["type"])
    a, b, flag = v
    total = a + sign * (b + (flag if reads else 0))
    out = int(total >> width != 0)
    return total, out if m.get("cc") else flag


def _half(m: Mods, product: int) -> int:
    width = _width(m["type"])
    return {"lo": product, "hi": product >> width, "wide": product}[m.get("half") or "wide"]


def _mul(m: Mods, v: Values) -> Results:
    return (_half(m, _value(v[0], m["type"]) * _value(v[1], m["type"])),)


def _mad(m: Mods, v: Values) -> Results:
    if m.get("cc"):
        return _mad_carry(m, v, False)
    half = _half(m, _value(v[0], m["type"]) * _value(v[1], m["type"]))
    if m.get("sat"):
        return (_limit(_signed(_bits(half, 32), 32) + _signed(v[2], 32), 32, True),)
    return (half + v[2],)


def _mad_carry(m: Mods, v: Values, reads: bool) -> Results:
    width = _width(m["type"])
    a, b, c, flag = v
    half = _bits(_half(m, _value(a, m["type"]) * _value(b, m["type"])), width)
    total = half + c + (flag if reads else 0)
    return total, total >> width if m.get("cc") else flag


def _mul24(m: Mods, v: Values) -> int:
    a, b = (x & 0xFFFFFF for x in v[:2])
    if m["type"] == "s32":
        a, b = _signed(a, 24), _signed(b, 24)
    return a * b >> (16 if m["half"] == "hi" else 0)


def _mad24(m: Mods, v: Values) -> Results:
    product = _bits(_mul24(m, v), 32)
    if m.get("sat"):
        return (_limit(_signed(product, 32) + _signed(v[2], 32), 32, True),)
    return (product + v[2],)


def _sad(m: Mods, v: Values) -> Results:
    a, b = (_value(x, m["type"]) for x in v[:2])
    return (v[2] + abs(a - b),)


def _quotient(m: Mods, v: Values) -> tuple[int, int]:
    """Toward zero; the remainder has the sign of the dividend."""
    a, b = (_value(x, m["type"]) for x in v)
    quotient = abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
    return quotient, a - quotient * b


def _dp4a(m: Mods, v: Values) -> Results:
    total = v[2]
    for k in range(4):
        a, b = v[0] >> 8 * k & 0xFF, v[1] >> 8 * k & 0xFF
        a = _signed(a, 8) if m["atype"] == "s32" else a
        b = _signed(b, 8) if m["btype"] == "s32" else b
        total += a * b
    return (total,)


def _dp2a(m: Mods, v: Values) -> Results:
    total = v[2]
    for k in range(2):
        a, b = v[0] >> 16 * k & 0xFFFF, v[1] >> 8 * (k + 2 * (m["half"] == "hi")) & 0xFF
        a = _signed(a, 16) if m["atype"] == "s32" else a
        b = _signed(b, 8) if m["btype"] == "s32" else b
        total += a * b
    return (total,)


# --- sign, extremes, comparison -------------------------------------------------------------------


def _elementwise(one: Callable[..., int], m: Mods, v: Values) -> Results:
    """A rule for one element, on all elements of packed floats and integers."""
    name, _, count = m["type"].partition("x")
    if not count:
        return (one(m, name, *v),)
    width = _width(name)
    mask = (1 << width) - 1
    parts = [one(m, name, *(x >> n * width & mask for x in v)) & mask for n in range(int(count))]
    return (sum(part << n * width for n, part in enumerate(parts)),)


def _flushed(m: Mods, name: str, bits: int) -> int:
    return model.flush(bits, LAYOUTS[name]) if m.get("ftz") else bits


def _is_nan(name: str, bits: int) -> bool:
    return model.number(bits, LAYOUTS[name]).special == "nan"


def _sign_change(keep: bool) -> Callable[..., int]:
    def one(m: Mods, name: str, a: int) -> int:
        if _is_float(name):
            a = _flushed(m, name, a)
            sign = LAYOUTS[name].sign
            return a & ~sign if keep else a ^ sign
        value = _value(a, name)
        return abs(value) if keep else -value

    return one


def _extreme(greatest: bool) -> Callable[..., int]:
    def integers(m: Mods, name: str, a: int, b: int) -> int:
        values = _value(a, name), _value(b, name)
        out = max(values) if greatest else min(values)
        return max(out, 0) if m.get("relu") else out

    def floats(m: Mods, name: str, a: int, b: int) -> int:
        layout = LAYOUTS[name]
        a, b = _flushed(m, name, a), _flushed(m, name, b)
        nans = _is_nan(name, a), _is_nan(name, b)
        if all(nans) or (m.get("NaN") and any(nans)):
            return layout.nan or 0
        sign = (a ^ b) & layout.sign
        if m.get("abs"):
            a, b = a & ~layout.sign, b & ~layout.sign
        if any(nans):
            out = b if nans[0] else a
        else:
            out = b if model.magnitude_less(a, b, layout) == greatest else a
        return out & ~layout.sign | sign if m.get("xorsign") else out

    def one(m: Mods, name: str, *v: int) -> int:
        rule = floats if _is_float(name) else integers
        out = rule(m, name, v[0], v[1])
        return rule(m, name, out, v[2]) if len(v) > 2 else out

    return one


def _order(name: str, a: int, b: int) -> int | None:
    """-1, 0 or 1; None with a NaN."""
    if not _is_float(name):
        x, y = _value(a, name), _value(b, name)
        return (x > y) - (x < y)
    layout = LAYOUTS[name]
    if _is_nan(name, a) or _is_nan(name, b):
        return None
    if not (a | b) & ~layout.sign:
        return 0
    return 0 if a == b else -1 if model.magnitude_less(a, b, layout) else 1


def _holds(m: Mods, name: str, a: int, b: int) -> bool:
    op = m["cmp"]
    found = _order(name, _flushed(m, name, a), _flushed(m, name, b))
    if op in ("num", "nan"):
        return (found is None) == (op == "nan")
    if found is None:
        return op.endswith("u")
    op = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(op, op.removesuffix("u"))
    return {
        "eq": found == 0, "ne": found != 0, "lt": found < 0, "le": found <= 0, "gt": found > 0,
        "ge": found >= 0,
    }[op]  # fmt: skip


def _combined(m: Mods, t: bool, v: Values) -> bool:
    if not m.get("bool"):
        return t
    c = bool(v[2])
    return {"and": t and c, "or": t or c, "xor": t != c}[m["bool"]]


def _packed_tests(m: Mods, v: Values) -> list[bool]:
    pairs = zip(_halves(v[0]), _halves(v[1]), strict=True)
    return [_combined(m, _holds(m, m["type"][:-2], a, b), v) for a, b in pairs]


def _setp(m: Mods, v: Values) -> Results:
    if m["type"].endswith("x2"):
        low, high = _packed_tests(m, v)
        return int(low), int(high)
    t = _holds(m, m["type"], v[0], v[1])
    return int(_combined(m, t, v)), int(_combined(m, not t, v))


_ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}


def _set(m: Mods, v: Values) -> Results:
    if m["type"].endswith("x2"):
        low, high = _packed_tests(m, v)
        true = _ONES.get(m["dtype"], 0xFFFF)
        return (high * true << 16 | low * true,)
    t = _combined(m, _holds(m, m["type"], v[0], v[1]), v)
    return (t * _ONES.get(m["dtype"], -1),)


def _slct(m: Mods, v: Values) -> Results:
    a, b, c = v
    if m["ctype"] == "s32":
        return (a if _signed(c, 32) >= 0 else b,)
    order = _order("f32", _flushed(m, "f32", c), 0)
    return (a if order is not None and order >= 0 else b,)


def _testp(m: Mods, v: Values) -> Results:
    layout, bits = LAYOUTS[m["type"]], v[0]
    x = model.number(bits, layout)
    tiny = model.flush(bits, layout) & ~layout.sign == 0  # zero or subnormal
    zero = bits & ~layout.sign == 0
    truth = {
        "finite": not x.special, "infinite": x.special == "inf", "number": x.special != "nan",
        "notanumber": x.special == "nan", "normal": not x.special and (zero or not tiny),
        "subnormal": tiny and not zero,
    }  # fmt: skip
    return (int(truth[m["kind"]]),)


def _copysign(m: Mods, v: Values) -> Results:
    sign = LAYOUTS[m["type"]].sign
    return (v[0] & sign | v[1] & ~sign,)


# --- bits -----------------------------------------------------------------------------------------


def _bfind(m: Mods, v: Values) -> Results:
    width = _width(m["type"])
    a = v[0]
    if m["type"][0] == "s" and a >> (width - 1):
        a = ~a & ((1 << width) - 1)
    if not a:
        return (WORD,)
    position = a.bit_length() - 1
    return (width - 1 - position if m.get("shiftamt") else position,)


def _fns(m: Mods, v: Values) -> Results:
    mask, base, offset = v[0], v[1], _signed(v[2], 32)
    if offset == 0:
        return (base if mask >> base & 1 else WORD,)
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [p for p in places if mask >> p & 1]
    return (found[abs(offset) - 1] if abs(offset) <= len(found) else WORD,)


def _bfe(m: Mods, v: Values) -> Results:
    width = _width(m["type"])
    a, position, length = v[0], v[1] & 0xFF, v[2] & 0xFF
    fill = 0
    if m["type"][0] == "s" and length:
        fill = a >> min(position + length - 1, width - 1) & 1
    out = 0
    for i in range(width):
        inside = i < length and position + i < width
        out |= (a >> (position + i) & 1 if inside else fill) << i
    return (out,)


def _bfi(m: Mods, v: Values) -> Results:
    width = _width(m["type"])
    a, out, position, length = v[0], v[1], v[2] & 0xFF, v[3] & 0xFF
    for i in range(length):
        if position + i < width:
            out = out & ~(1 << position + i) | (a >> i & 1) << position + i
    return (out,)


def _szext(m: Mods, v: Values) -> Results:
    a, n = v
    n = n % 32 if m["mode"] == "wrap" else min(n, 32)
    low = a & ((1 << n) - 1)
    return (_signed(low, n) if n and m["type"] == "s32" else low,)


def _bmsk(m: Mods, v: Values) -> Results:
    position, count = (x % 32 if m["mode"] == "wrap" else min(x, 32) for x in v)
    return (((1 << count) - 1) << position,)


def _shl(m: Mods, v: Values) -> Results:
    return (v[0] << min(v[1], _width(m["type"])),)


def _shr(m: Mods, v: Values) -> Results:
    return (_value(v[0], m["type"]) >> min(v[1], _width(m["type"])),)


def _shf(m: Mods, v: Values) -> Results:
    pair, n = v[1] << 32 | v[0], v[2] % 32 if m["mode"] == "wrap" else min(v[2], 32)
    return ((pair << n) >> 32 if m["direction"] == "l" else pair >> n,)


def _lop3(m: Mods, v: Values) -> Results:
    a, b, c = v[:3]
    lut = int(m["lut"])
    out = 0
    for i in range(32):
        index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)
        out |= (lut >> index & 1) << i
    if not m.get("bool"):
        return (out,)
    test, q = out != 0, bool(v[3])
    return out, int(test or q if m["bool"] == "or" else test and q)


def _prmt(m: Mods, v: Values) -> Results:
    pair, c = v[1] << 32 | v[0], v[2]
    n = c & 3
    picks = {
        "": [c >> 4 * i & 0xF for i in range(4)],
        "f4e": [n + i for i in range(4)],
        "b4e": [(n - i) % 8 for i in range(4)],
        "rc8": [n] * 4,
        "ecl": [max(i, n) for i in range(4)],
        "ecr": [min(i, n) for i in range(4)],
        "rc16": [2 * (n & 1) + (i & 1) for i in range(4)],
    }[m.get("mode", "")]
    out = 0
    for i, pick in enumerate(picks):
        byte = pair >> 8 * (pick & 7) & 0xFF
        if pick & 8:  # the generic form alone: copies of the sign
            byte = 0xFF * (byte >> 7)
        out |= byte << 8 * i
    return (out,)


# --- video ----------------------------------------------------------------------------------------


def _part(word: int, name: str, selector: str) -> int:
    """A part of a word, read by the signedness of its type."""
    if not selector:
        return _value(word, name)
    width = 8 if selector[0] == "b" else 16
    part = word >> width * int(selector[1]) & ((1 << width) - 1)
    return _signed(part, width) if name == "s32" else part


def _away(x: int, y: int) -> int:
    half = (abs(x + y) + 1) // 2
    return half if x + y >= 0 else -half


_VIDEO: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "absdiff": lambda x, y: abs(x - y),
    "min": min, "max": max, "avrg": _away,
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip


def _video(name: str) -> Callable[[Mods, Values], Results]:
    """A scalar video instruction."""

    def rule(m: Mods, v: Values) -> Results:
        signed = m.get("dtype") == "s32"  # vset has no dtype and is unsigned
        a = _part(v[0], m["atype"], m.get("a_part", ""))
        b = _part(v[1], m["btype"], m.get("b_part", ""))
        if name in ("shl", "shr"):
            n = b % 32 if m["mode"] == "wrap" else min(b, 32)
            exact = a << n if name == "shl" else a >> n
        else:
            exact = _VIDEO[m["cmp"] if name == "set" else name](a, b)
        part = m.get("d_part", "")
        width = {"": 32, "b": 8, "h": 16}[part[:1]]
        if m.get("sat"):
            exact = _limit(exact, width, signed)
        if part:
            shift = width * int(part[1])
            mask = (1 << width) - 1
            return (v[2] & ~(mask << shift) | (exact & mask) << shift,)
        if m.get("op2"):
            word = "s32" if signed else "u32"
            return (_VIDEO[m["op2"]](_value(exact, word), _value(v[2], word)),)
        return (exact,)

    return rule


def _simd(name: str, parts: int) -> Callable[[Mods, Values], Results]:
    """A SIMD video instruction; the last digit of a selector is element 0."""

    def rule(m: Mods, v: Values) -> Results:
        width = 32 // parts
        pair = v[1] << 32 | v[0]
        chosen = [
            m.get(k) or d for k, d in zip(("a_part", "b_part"), _DEFAULTS[parts], strict=True)
        ]
        mask = {int(digit) for digit in m["d_part"][1:]} if m.get("d_part") else set(range(parts))
        out = v[2]
        for i in sorted(mask):
            x, y = (
                _part(pair >> width * int(digits[-1 - i]) & ((1 << width) - 1), kind, part)
                for digits, kind, part in zip(
                    chosen,
                    (m["atype"], m["btype"]),
                    ("b0" if width == 8 else "h0",) * 2,
                    strict=True,
                )
            )
            exact = int(_VIDEO[m["cmp"] if name == "set" else name](x, y))
            if m.get("add"):
                out += exact
                continue
            if m.get("sat"):
                exact = _limit(exact, width, m["dtype"] == "s32")
            ones = (1 << width) - 1
            out = out & ~(ones << width * i) | (exact & ones) << width * i
        return (out,)

    return rule


_DEFAULTS = {2: ("h10", "h32"), 4: ("b3210", "b7654")}


def _vmad(m: Mods, v: Values) -> Results:
    negated = (m.get("a_sign") == "-") != (m.get("b_sign") == "-")
    minus_c = m.get("c_sign") == "-"
    signed = "s32" in (m["atype"], m["btype"]) or negated or minus_c
    a = _part(v[0], m["atype"], m.get("a_part", ""))
    b = _part(v[1], m["btype"], m.get("b_part", ""))
    c = _signed(v[2], 32) if signed else v[2]
    total = (-a if negated else a) * b + (-c if minus_c else c) + bool(m.get("po"))
    total >>= {"": 0, "shr7": 7, "shr15": 15}[m.get("scale", "")]
    return (_limit(total, 32, signed) if m.get("sat") else total,)


# --- moves ----------------------------------------------------------------------------------------


def _mov(m: Mods, v: Values) -> Results:
    """A copy, a packing or an unpacking: the caller says how many results there are."""
    count = int(m["results"])
    if count == len(v):
        return tuple(v)
    width = _width(m["type"]) // max(count, len(v))
    if count == 1:
        return (sum(part << width * i for i, part in enumerate(v)),)
    return tuple(v[0] >> width * i for i in range(count))


def _not(m: Mods, v: Values) -> Results:
    return (int(not v[0]) if m["type"] == "pred" else ~v[0],)


RULES: dict[str, Callable[[Mods, Values], Results]] = {
    "add": lambda m, v: _sum(m, v, 1),
    "sub": lambda m, v: _sum(m, v, -1),
    "addc": lambda m, v: _carried(m, v, 1, True),
    "subc": lambda m, v: _carried(m, v, -1, True),
    "mul": _mul,
    "mad": _mad,
    "madc": lambda m, v: _mad_carry(m, v, True),
    "mul24": lambda m, v: (_mul24(m, v),),
    "mad24": _mad24,
    "sad": _sad,
    "div": lambda m, v: (_quotient(m, v)[0],),
    "rem": lambda m, v: (_quotient(m, v)[1],),
    "dp4a": _dp4a,
    "dp2a": _dp2a,
    "abs": lambda m, v: _elementwise(_sign_change(True), m, v),
    "neg": lambda m, v: _elementwise(_sign_change(False), m, v),
    "min": lambda m, v: _elementwise(_extreme(False), m, v),
    "max": lambda m, v: _elementwise(_extreme(True), m, v),
    "setp": _setp,
    "set": _set,
    "selp": lambda m, v: (v[0] if v[2] else v[1],),
    "slct": _slct,
    "testp": _testp,
    "copysign": _copysign,
    "popc": lambda m, v: (v[0].bit_count(),),
    "clz": lambda m, v: (_width(m["type"]) - v[0].bit_length(),),
    "bfind": _bfind,
    "fns": _fns,
    "brev": lambda m, v: (int(f"{v[0]:0{_width(m['type'])}b}"[::-1], 2),),
    "bfe": _bfe,
    "bfi": _bfi,
    "szext": _szext,
    "bmsk": _bmsk,
    "and": lambda m, v: (v[0] & v[1],),
    "or": lambda m, v: (v[0] | v[1],),
    "xor": lambda m, v: (v[0] ^ v[1],),
    "not": _not,
    "cnot": lambda m, v: (int(v[0] == 0),),
    "shl": _shl,
    "shr": _shr,
    "shf": _shf,
    "lop3": _lop3,
    "prmt": _prmt,
    "mov": _mov,
    "vmad": _vmad,
    **{f"v{o}": _video(o) for o in ("add", "sub", "absdiff", "min", "max", "set", "shl", "shr")},
    **{
        f"v{o}{n}": _simd(o, n)
        for o in ("add", "sub", "absdiff", "min", "max", "avrg", "set")
        for n in (2, 4)
    },
}

"""The words of cooperative matrices: component, scope, use, shape, fragment, config, layout.

A fragment is one operand of a multiply-accumulate, held by a group of threads together; a config is
one combination of shape and component types.  The names are those of Sarek's ``coopmat`` types.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "COMPONENTS",
    "LAYOUTS",
    "MODIFIERS",
    "SCOPES",
    "USES",
    "Available",
    "Config",
    "Fragment",
    "Shape",
    "Unavailable",
    "Unknown",
    "Verdict",
    "accumulation_is_exact",
    "components_per_invocation",
    "config_fits_subgroup",
    "find_config",
    "regime",
    "verdict",
]

#: Bits of each component type, and whether it is an integer.
COMPONENTS: dict[str, tuple[int, bool]] = {
    "f16": (16, False), "bf16": (16, False), "tf32": (32, False), "f32": (32, False),
    "f64": (64, False), "u8": (8, True), "s8": (8, True), "u4": (4, True), "s4": (4, True),
    "b1": (1, True), "u32": (32, True), "s32": (32, True),
}  # fmt: skip

SCOPES = ("subgroup", "workgroup", "device", "queue-family")
USES = ("a", "b", "accumulator")
LAYOUTS = ("row", "col")
#: How bits are multiplied (xor or and, then a count of ones), and how f64 is rounded.
MODIFIERS = ("xor", "and", "rn", "rz", "rm", "rp")


@dataclass(frozen=True, slots=True)
class Shape:
    """Extents: A is m x k, B is k x n, C and the result are m x n."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True, slots=True)
class Fragment:
    """One operand: its use, the shape of the product, the component type and who holds it."""

    use: str
    shape: Shape
    component: str
    scope: str = "subgroup"

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return self.shape.k if self.use == "b" else self.shape.m

    @property
    def columns(self) -> int:
        """Columns of the matrix."""
        return self.shape.k if self.use == "a" else self.shape.n

    @property
    def components(self) -> int:
        """Elements of the matrix."""
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"{self.use} {self.shape} {self.component} {self.scope}"


@dataclass(frozen=True, slots=True)
class Config:
    """A combination of types: ``a * b + c`` with a result, maybe saturating.

    ``modifier`` is one of :data:`MODIFIERS` or empty.
    """

    shape: Shape
    a: str
    b: str
    c: str
    result: str
    saturating: bool = False
    scope: str = "subgroup"
    modifier: str = ""

    def __str__(self) -> str:
        tail = " saturating" if self.saturating else ""
        tail += f" {self.modifier}" if self.modifier else ""
        return f"{self.shape} {self.a}*{self.b}+{self.c}->{self.result}{tail} {self.scope}"

    def fragments(self) -> tuple[Fragment, Fragment, Fragment, Fragment]:
        """The fragments of A, B, C and the result."""
        return (
            Fragment("a", self.shape, self.a, self.scope),
            Fragment("b", self.shape, self.b, self.scope),
            Fragment("accumulator", self.shape, self.c, self.scope),
            Fragment("accumulator", self.shape, self.result, self.scope),
        )


def accumulation_is_exact(config: Config) -> bool:
    """Whether the order of additions cannot matter: accumulator and result are integers."""
    return COMPONENTS[config.c][1] and COMPONENTS[config.result][1]


def regime(config: Config) -> str:
    """``strict``, or ``relaxed-bounded`` where the order of the k + 1 additions is open."""
    return "strict" if accumulation_is_exact(config) else "relaxed-bounded"


def components_per_invocation(fragment: Fragment, invocations: int) -> int:
    """Elements that each of ``invocations`` threads holds; ValueError if they do not divide."""
    count = fragment.components
    if invocations <= 0 or count % invocations:
        raise ValueError(f"{count} components do not divide among {invocations} invocations")
    return count // invocations


def config_fits_subgroup(config: Config, size: int) -> bool:
    """Whether all fragments divide among the threads of a subgroup."""
    return size > 0 and all(f.components % size == 0 for f in config.fragments())


# --- what a device offers -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is not known what the device offers."""

    reason: str = "support was not probed"


@dataclass(frozen=True, slots=True)
class Available:
    """The device offers the config."""

    config: Config


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The device does not offer the config."""

    reason: str


Verdict = Unknown | Available | Unavailable


def verdict(support: Iterable[Config] | None, config: Config) -> Verdict:
    """Whether a device offers a config: an exact match, saturation and scope included."""
    if support is None:
        return Unknown()
    if config in set(support):
        return Available(config)
    return Unavailable(f"{config} is not among the configs of the device")


def find_config(support: Iterable[Config], a: str, b: str, c: str, result: str) -> Config | None:
    """The first config of these types, one that does not saturate before one that does."""
    found = [x for x in support if (x.a, x.b, x.c, x.result) == (a, b, c, result)]
    return min(found, key=lambda x: x.saturating, default=None)

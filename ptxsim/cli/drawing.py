"""Pieces of SVG pictures of lanes: colours, text, lines, and the picture around them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = [
    "BORDER",
    "FAINT",
    "INK",
    "LANE_FILLS",
    "lane_key",
    "line",
    "number",
    "picture",
    "rectangle",
    "text",
]

#: Fills of the eight lane groups: light enough for dark text, and apart for the colour-blind.
LANE_FILLS = (
    "#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#44bb99", "#dddddd", "#bbcc33", "#99ddff",
)  # fmt: skip
INK = "#111111"
FAINT = "#555555"
BORDER = "#4d4d4d"
_FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"


def picture(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A whole picture on white that needs nothing else."""
    w, h = number(width), number(height)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" '
        f'viewBox="0 0 {w} {h}" font-family="{_FONT}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{w}" height="{h}" fill="#ffffff"/>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def number(value: float) -> str:
    """A coordinate, to a hundredth and without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(
    x: float, y: float, words: str, size: int,
    *, anchor: str = "start", weight: str = "normal", fill: str = INK,
) -> str:  # fmt: skip
    """A line of text on a base line."""
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="{fill}">{escape(words)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, width: float, colour: str = BORDER) -> str:
    """A straight line."""
    return (
        f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
        f'stroke="{colour}" stroke-width="{number(width)}"/>'
    )


def rectangle(x: float, y: float, width: float, height: float, style: str) -> str:
    """A rectangle; ``style`` has its fill and stroke as attributes."""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}" {style}/>'
    )


def lane_key(x: float, y: float) -> list[str]:
    """Which colour is which group of four lanes."""
    out = []
    for group, fill in enumerate(LANE_FILLS):
        at = x + 73 * group
        out.append(rectangle(at, y - 13, 16, 16, f'fill="{fill}" stroke="{BORDER}"'))
        out.append(text(at + 21, y, f"T{4 * group}-{4 * group + 3}", 12))
    return out

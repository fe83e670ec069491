"""Where the grammar files are: inside the installed package, or beside a checkout."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

__all__ = ["grammar_text"]


def grammar_text(name: str = "ptx.lark") -> str:
    """The text of a grammar file."""
    try:
        return resources.files("ptxsim.grammar").joinpath(name).read_text("utf-8")
    except ModuleNotFoundError:
        return (Path(__file__).parents[2] / "grammar" / name).read_text("utf-8")

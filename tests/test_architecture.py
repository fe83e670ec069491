"""The shape of the repository: import directions, packaging, no text evaluated as Python."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ptxsim"
LOWERING = ROOT / "lowering"

#: what each part may import of the others; everything may import the plain modules
PLAIN = {"diagnostics", "errors", "targets", "types", "windows", "_version"}
ALLOWED = {
    "numerics": set(),
    "matrix": {"numerics"},
    "syntax": set(),
    "isa": {"numerics", "matrix"},
    "resolve": {"syntax", "isa"},
    "program": {"resolve", "isa", "matrix", "numerics"},
    "machine": {"program", "resolve", "isa", "numerics"},
    "report": set(),
    "device": {"nvidia", "report"},
    "api": {"device", "machine", "report", "resolve", "syntax"},
    "build": {"api", "resolve", "syntax"},
    "agreement": {"api", "isa", "machine", "numerics", "program", "report", "resolve", "syntax"},
    "explanations": set(),
    "nvidia": set(),
    "core": {"api", "report"},
    "pytest_plugin": {"api", "cli", "device", "report"},
    "cli": {
        "agreement",
        "api",
        "explanations",
        "report",
        "isa",
        "machine",
        "matrix",
        "numerics",
        "nvidia",
        "program",
        "resolve",
        "syntax",
    },
}
FILES = sorted(PACKAGE.rglob("*.py"))
LOWERING_FILES = sorted(LOWERING.rglob("*.py"))


def _imports(path: Path) -> set[str]:
    """Parts of ptxsim that a file imports at run time."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    found = set()
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only or not isinstance(node, ast.ImportFrom):
            continue
        base = list(parts[: len(parts) - node.level]) if node.level else []
        if not node.level and not (node.module or "").startswith("ptxsim"):
            continue
        target = base + (node.module or "").removeprefix("ptxsim").strip(".").split(".")
        target = [t for t in target if t]
        found |= {target[0]} if target else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    part = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if part not in ALLOWED:
        return
    beyond = _imports(path) - PLAIN - ALLOWED[part] - {part}
    if part == "cli":
        beyond -= {"assemble", "undefined", "Module", "Kernel", "Report", "__version__"}
    assert not beyond


def test_the_check_of_imports_can_fail() -> None:
    assert "resolve" in _imports(PACKAGE / "machine" / "launch.py")
    assert "resolve" not in ALLOWED["isa"]


def test_packages_are_the_folders_on_disk() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = [p for p in (*FILES, *LOWERING_FILES) if p.name == "__init__.py"]
    folders = {".".join(p.parent.relative_to(ROOT).parts) for p in found} | {"ptxsim.grammar"}
    assert set(listed) == folders


def _absolute_imports(source: str) -> set[tuple[str, str]]:
    """(module, name) of every absolute import, wherever it stands; no name for a plain import."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {(node.module or "", alias.name) for alias in node.names}
    return found


def _private_uses(source: str) -> set[tuple[str, str]]:
    """Imports of what ptxsim does not offer: private modules, and names not in ``__all__``."""
    found = set()
    for module, name in _absolute_imports(source):
        parts = module.split(".")
        if parts[0] != "ptxsim":
            continue
        private = any(part.startswith("_") for part in [*parts, name])
        if private or (name and name not in importlib.import_module(module).__all__):
            found.add((module, name))
    return found


def _private_of_others(path: Path, source: str) -> set[str]:
    """Private functions of another module of ptxsim that a file imports or calls by its name."""
    found, modules = set(), set()
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        for alias in node.names:
            if (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir():
                modules.add(alias.asname or alias.name)
            elif alias.name.startswith("_") and not alias.name.startswith("__"):
                found.add(alias.name)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in modules and node.attr.startswith("_"):
                found.add(f"{node.value.id}.{node.attr}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_private_stays_in_its_module(path: Path) -> None:
    assert not _private_of_others(path, path.read_text())


def test_the_check_of_private_names_can_fail() -> None:
    source = "from . import run\nfrom .check import _check\nrun._invalid()\n"
    found = _private_of_others(PACKAGE / "cli" / "diff.py", source)
    assert found == {"_check", "run._invalid"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_ptxsim_never_imports_lowering(path: Path) -> None:
    modules = {module.split(".")[0] for module, _ in _absolute_imports(path.read_text())}
    assert "lowering" not in modules


@pytest.mark.parametrize("path", LOWERING_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_lowering_uses_what_ptxsim_offers(path: Path) -> None:
    assert not _private_uses(path.read_text())


def test_the_layout_algebra_needs_numpy_alone() -> None:
    used = {
        module.split(".")[0]
        for path in (LOWERING / "layout").glob("*.py")
        for module, _ in _absolute_imports(path.read_text())
    }
    assert used - set(sys.stdlib_module_names) == {"numpy"}


def test_the_checks_of_lowering_can_fail() -> None:
    assert ("lowering.layout", "parse") in _absolute_imports(
        "def f():\n    from lowering.layout import parse"
    )
    assert _private_uses("from ptxsim import assemble\nimport ptxsim.numerics") == set()
    assert _private_uses("import ptxsim._version") == {("ptxsim._version", "")}
    assert _private_uses("from ptxsim.types import __all__") == {("ptxsim.types", "__all__")}
    assert _private_uses("from ptxsim.matrix.layouts import re") == {
        ("ptxsim.matrix.layouts", "re")
    }


def test_no_text_is_evaluated_as_python() -> None:
    pattern = re.compile(r"(?<![\w.])(eval|exec)\(|\bpickle\b|shell=True|yaml\.load\(")
    assert not [p for p in FILES + LOWERING_FILES if pattern.search(p.read_text())]


def test_version_needs_neither_parser_nor_numpy() -> None:
    code = (
        "import sys, ptxsim.cli\n"
        "try: ptxsim.cli.main(['--version'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('lark', 'numpy', 'cuda') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert out.stdout.splitlines()[-1] == "[]", out.stderr

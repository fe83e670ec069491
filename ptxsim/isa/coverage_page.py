"""The page of what is modelled, made of the records alone: ``ptxsim isa --markdown``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..targets import Floor
from .coverage import coverage_table, floor_text, form_text
from .record import Form, Instruction, registry

__all__ = ["coverage_page"]

_HEAD = """\
# Coverage

What ptxsim knows of each instruction of PTX, made of its records by

```sh
ptxsim isa --markdown > docs/coverage.md
```

A form is a syntax line of the PTX ISA. *Executed* forms are checked when a text is assembled and
run when it is launched. Forms that are *checked only* have their modifiers, operands and floors
checked and are reported as not modelled (PTX400). *Exact* results are those of a GPU to the bit;
*approximate* ones are within the documented error. *Since* is the PTX ISA version and the target
that the instruction needs; forms and modifiers that need more say so, in the lists of forms.
"""

_Row = tuple[str, ...]


def coverage_page() -> str:
    """The page in Markdown."""
    families: dict[str, list[Instruction]] = defaultdict(list)
    for row in coverage_table():
        for record in registry.get(row["name"]):
            families[_family(record)].append(record)
    bare = [row["name"] for row in coverage_table() if not registry.get(row["name"])]
    parts = [_HEAD, *_totals(families)]
    for name in sorted(families):
        parts += _family_part(name, families[name])
    if bare:
        parts.append("\n## Known by name\n\nLegal PTX of which ptxsim knows the name alone:\n")
        parts.append(", ".join(f"`{name}`" for name in bare) + ".\n")
    return "".join(parts)


def _family(record: Instruction) -> str:
    """The chapter of the PTX ISA, by the title of the record's section."""
    return record.isa.partition(":")[0].removesuffix(" Instructions")


def _counts(records: Sequence[Instruction]) -> tuple[int, int]:
    """Executed forms, and those that are checked only."""
    forms = [form for record in records for form in record.forms]
    executed = sum(not form.unsupported for form in forms)
    return executed, len(forms) - executed


def _results(record: Instruction) -> str:
    """What the results of the executed forms are worth."""
    if not _counts([record])[0]:
        return ""
    return "approximate" if record.approximate else "exact"


def _totals(families: dict[str, list[Instruction]]) -> Iterator[str]:
    rows = []
    for name in sorted(families):
        records = families[name]
        kinds = [_results(record) for record in records]
        instructions = len({record.name for record in records})
        counts = (instructions, *_counts(records), kinds.count("exact"), kinds.count("approximate"))
        rows.append((name, *map(str, counts)))
    sums = [sum(int(row[i]) for row in rows) for i in range(1, 6)]
    rows.append(("all", *map(str, sums)))
    head = ("family", "instructions", "executed forms", "checked only", "exact", "approximate")
    yield "\n" + _table(head, rows)
    yield "\nAn instruction that several families have counts in each of them.\n"


def _family_part(name: str, records: Sequence[Instruction]) -> Iterator[str]:
    yield f"\n## {name}\n\n"
    rows = []
    for record in records:
        executed, checked = _counts([record])
        since = floor_text(record.floor)
        summary = (record.__doc__ or "").splitlines()[0].replace("``", "`")
        counts = str(executed), str(checked)
        rows.append((f"`{record.name}`", summary, *counts, since, _results(record)))
    head = ("instruction", "what it does", "executed", "checked only", "since", "results")
    yield _table(head, rows)
    yield "\n<details><summary>forms</summary>\n\n```text\n"
    for record in records:
        for form in record.forms:
            yield form_text(record, form).strip() + _word_floors(form) + "\n"
    yield "```\n\n</details>\n"


def _word_floors(form: Form) -> str:
    """What modifiers need beyond their form, those with equal needs together."""
    needs: dict[Floor, list[str]] = defaultdict(list)
    for slot in form.slots:
        for word, floor in slot.floors.items():
            if floor_text(floor):
                needs[floor].append(f".{word}")
    texts = [f"{' '.join(words)}: {floor_text(floor)}" for floor, words in needs.items()]
    return "".join(f"\n    // {text}" for text in texts)


def _table(head: _Row, rows: Sequence[_Row]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(c.replace('|', chr(92) + '|') for c in r)} |\n" for r in lines)

"""Pictures of an access for the HTML report: its lanes, and its words in shared memory's banks."""

from __future__ import annotations

from collections.abc import Sequence

from ..report import Finding

__all__ = ["bank_map", "lane_grid", "words_of"]

#: Shared memory has 32 banks; each gives one word of 4 bytes at a time.
BANKS = 32
WORD = 4
#: Rows of 32 words that are drawn; a fault far apart from the rest would not fit a page.
_MOST_ROWS = 16


def lane_grid(lanes: Sequence[int], addresses: Sequence[int] = ()) -> str:
    """The 32 lanes of a warp with those marked that made an access."""
    at = dict(zip(lanes, addresses, strict=False))
    named = set(lanes)
    cells = []
    for lane in range(32):
        title = f"lane {lane}" + (f", address {at[lane]:#x}" if lane in at else "")
        kind = ' class="on"' if lane in named else ""
        cells.append(f'<span{kind} title="{title}">{lane}</span>')
    return f'<div class="lanes">{"".join(cells)}</div>'


def words_of(finding: Finding) -> dict[int, list[int]]:
    """Word of shared memory -> lanes that access it; of the first lane if no more is known."""
    addresses = finding.addresses
    lanes: Sequence[int] = finding.lanes
    if not addresses and finding.address is not None:
        addresses, lanes = (finding.address,), finding.lanes[:1] or (0,)
    out: dict[int, list[int]] = {}
    for lane, address in zip(lanes, addresses, strict=False):
        last = (address + max(finding.size or 1, 1) - 1) // WORD
        for word in range(address // WORD, last + 1):
            out.setdefault(word, []).append(lane)
    return out


def bank_map(finding: Finding) -> str:
    """Rows of 32 words of shared memory with the lanes that access them, a column for each bank.

    A bank whose words lie in several rows cannot serve them all at once and is marked.
    """
    words = words_of(finding)
    rows = sorted({word // BANKS for word in words})
    shown = rows[:_MOST_ROWS]
    in_bank = [sum(row * BANKS + bank in words for row in rows) for bank in range(BANKS)]
    head = "".join(
        f'<th{_many(n)} title="bank {bank}: {n} different word{"s" * (n != 1)}">{bank}</th>'
        for bank, n in enumerate(in_bank)
    )
    body = []
    for row in shown:
        cells = (_cell(row * BANKS + bank, words) for bank in range(BANKS))
        body.append(f"<tr><th>{row * BANKS * WORD:#x}</th>{''.join(cells)}</tr>")
    more = len(rows) - len(shown)
    note = f'<p class="dim">{more} more rows</p>' if more else ""
    return (
        f'<div class="scroll"><table class="bank"><thead><tr><th>bank</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>{note}"
    )


def _many(count: int) -> str:
    return ' class="many"' if count > 1 else ""


def _cell(word: int, words: dict[int, list[int]]) -> str:
    lanes = words.get(word)
    if not lanes:
        return "<td></td>"
    text = str(lanes[0]) + ("+" if len(lanes) > 1 else "")
    title = f"address {word * WORD:#x}: lanes {', '.join(map(str, lanes))}"
    return f'<td class="on" title="{title}">{text}</td>'

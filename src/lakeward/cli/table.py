"""Plain tables on standard output: a line for the titles, one for each row, and no line broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich.cells import cell_len, chop_cells

Kind = Literal[
    "whole", "number", "text", "path"
]  # a path is shortened at its beginning, a text at its end; others never

GAP = "  "
SHORTEST = 12  # what is left of a text, in characters of the terminal


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[Kind] = (), room: int | None = None
) -> Sequence[str]:
    """Print a table that is at most `room` wide (None: as wide as what is in it); the titles that found no room.

    Long texts are shortened first, the widest more than others; then the last columns leave. The first column stays, whole if
    it is no path and fits.

    Args:
        kinds: of each column; all are whole without.
    """
    kinds = kinds or ["whole"] * len(titles)
    cells = [[text.replace("\n", "\\n").replace("\t", "\\t") for text in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    if room is not None:
        least = [_least(title, width, kind) for title, width, kind in zip(titles, widths, kinds, strict=True)]
        if kinds[0] == "text" and widths[0] <= room:
            least[0] = widths[0]
        widths = _fitted(widths, least, room)
    _print_line(titles, widths, kinds)
    print(GAP.join("─" * width for width in widths))
    for row in cells:
        _print_line(row, widths, kinds)
    return titles[len(widths) :]


def _least(title: str, width: int, kind: Kind) -> int:
    return min(width, max(SHORTEST, cell_len(title))) if kind in ("text", "path") else width


def _fitted(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths of as many columns as there is room for."""
    count = len(widths)
    while count > 1 and _total(least[:count]) > room:
        count -= 1
    fitted = list(widths[:count])
    while (over := _total(fitted) - room) > 0:
        giving = sorted((width, at) for at, width in enumerate(fitted) if width > least[at])
        if not giving:
            break
        widest, at = giving[-1]
        next_widest = giving[-2][0] if len(giving) > 1 else 0
        fitted[at] = max(least[at], widest - over, min(next_widest, widest - 1))
    return fitted


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _print_line(texts: Iterable[str], widths: Sequence[int], kinds: Sequence[Kind]) -> None:
    fields = []
    for text, width, kind in zip(texts, widths, kinds, strict=False):
        shown = _shortened(text, width, kind)
        blanks = " " * (width - cell_len(shown))
        fields.append(blanks + shown if kind == "number" else shown + blanks)
    print(GAP.join(fields).rstrip())


def _shortened(text: str, width: int, kind: Kind) -> str:
    if cell_len(text) <= width:
        return text
    if kind == "path":
        return "…" + chop_cells(text[::-1], width - 1)[0][::-1]
    return chop_cells(text, width - 1)[0] + "…"

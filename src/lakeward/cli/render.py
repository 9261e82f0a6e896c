"""The one way in which commands show what they found: tables for people, or one JSON document for scripts."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import msgspec

Row = Mapping[str, Any]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
NOTHING = "–"


def print_json(document: Any) -> None:
    """The document on standard output, as the only thing there. Times are ISO 8601, bytes base64; NaN becomes null."""
    try:
        text = msgspec.json.format(msgspec.json.encode(document, enc_hook=_encodable), indent=2).decode()
    except UnicodeEncodeError:  # UTF-8 has no halves of characters, JSON's escapes do
        plain = msgspec.to_builtins(document, enc_hook=_encodable, str_keys=True)
        text = json.dumps(_finite(plain), indent=2, allow_nan=False)
    sys.stdout.write(text + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_rows(name: str, rows: Sequence[Row], columns: Sequence[str], total: int | None = None, *, json: bool) -> None:
    """A list. JSON: {name: [rows with all their fields], "total": number before any limit}; for people: `columns` alone."""
    total = len(rows) if total is None else total
    if json:
        print_json({name: rows, "total": total})
        return
    if not rows:
        print(f"no {name.replace('_', ' ')}")
        return
    print_table(
        columns, [[cell(row.get(column), column) for column in columns] for row in rows], _numbers(rows, columns)
    )
    if total > len(rows):
        print(f"{len(rows):,} of {total:,}; --limit shows more")


def show_record(record: Row, *, json: bool) -> None:
    """One thing. JSON: the object; for people: a line for each field."""
    if json:
        print_json(record)
        return
    width = max((len(field) for field in record), default=0)
    for field, value in record.items():
        print(f"{field.replace('_', ' '):<{width}}  {cell(value, field)}")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> None:
    """A plain table on standard output, as wide as what is in it: terminals wrap, pipes lose nothing."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, header in enumerate(headers):
        is_number = number < len(right) and right[number]
        table.add_column(header.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(text) for text in row))  # as text: names may hold what rich takes for markup
    # What does not go to a terminal must not be wrapped at a width that nobody sees.
    width = None if sys.stdout.isatty() else 10_000
    console = Console(file=sys.stdout, highlight=False, width=width)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def cell(value: Any, column: str = "") -> str:
    """One value for people. Columns that are called bytes or size are amounts of bytes; ids are never grouped."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if column in ("bytes", "size") or column.endswith(("_bytes", "_size")):
            return size_text(value)
        return str(value) if column == "id" or column.endswith("_id") else f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {cell(each, str(name))}" for name, each in value.items()) or NOTHING
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(each) for each in value) or NOTHING
    return _SPECIAL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


# What would steer the terminal, and halves of characters, which it cannot have. Lines of a trace stay lines.
_SPECIAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def size_text(size: int) -> str:
    """1234567 -> '1.2 MB'; units of 1000."""
    amount = float(size)
    for unit in _UNITS:
        if amount < 999.95 or unit == _UNITS[-1]:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


def as_row(record: Any) -> dict[str, Any]:
    """A struct or dataclass as a dictionary of plain values; times stay times."""
    plain = msgspec.to_builtins(record, builtin_types=(datetime, date), enc_hook=_encodable, str_keys=True)
    assert isinstance(plain, dict)
    return plain


def _numbers(rows: Sequence[Row], columns: Sequence[str]) -> list[bool]:
    """Which columns hold numbers, which stand at the right."""
    return [
        all(isinstance(row.get(column), (int, float)) or row.get(column) is None for row in rows)
        and any(row.get(column) is not None and not isinstance(row.get(column), bool) for row in rows)
        for column in columns
    ]


def _encodable(value: Any) -> Any:
    """What msgspec does not know: names of tables, paths, decimals of engines."""
    return str(value)

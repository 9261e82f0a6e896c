"""The one way in which commands show what they found: tables for people, or one JSON document for scripts."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from lakeward.cli.table import Kind

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


@dataclass(frozen=True, slots=True)
class Output:
    """How a command was told to show what it found."""

    json: bool = False
    wide: bool = False  # tables whole, however narrow the terminal is


def show_rows(
    name: str,
    rows: Sequence[Any],
    columns: Sequence[str],
    total: int | None = None,
    *,
    to: Output,
    short: Collection[str] = (),
) -> None:
    """A list of records or mappings. JSON: {name: [rows with all their fields], "total": number before any limit}; for people: `columns` alone.

    Args:
        columns: by weight: where a terminal is too narrow, long texts are shortened first, then the last columns leave.
        short: those that may be shortened at their beginning, which is alike in all rows.
    """
    shown = [as_row(row) for row in rows]
    total = len(rows) if total is None else total
    if to.json:
        print_json({name: shown, "total": total})
        return
    if not rows:
        print(f"no {name.replace('_', ' ')}")
        return
    from lakeward.cli.table import print_table

    cells = [[cell(row.get(column), column) for column in columns] for row in shown]
    titles = [title(column) for column in columns]
    kinds = [_kind(shown, column, column in short) for column in columns]
    left = print_table(titles, cells, kinds, None if to.wide else terminal_width())
    if left:
        print(f"not shown: {', '.join(left)}; --wide shows all")
    if total > len(rows):
        print(f"{len(rows):,} of {total:,}; --limit shows more")


def show_record(record: Any, *, to: Output) -> None:
    """One record or mapping. JSON: the object; for people: a line for each field."""
    values = as_row(record)
    if to.json:
        print_json(values)
        return
    width = max((len(field) for field in values), default=0)
    for field, value in values.items():
        print(f"{title(field):<{width}}  {cell(value, field)}")


def title(field: str) -> str:
    return field.replace("_", " ")


def terminal_width() -> int | None:
    """None where standard output is no terminal: a pipe gets everything."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


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
    """A struct or dataclass as a dictionary of plain values; times stay times. A mapping as it is."""
    if isinstance(record, Mapping):
        return dict(record)
    plain = msgspec.to_builtins(record, builtin_types=(datetime, date), enc_hook=_encodable, str_keys=True)
    assert isinstance(plain, dict)
    return plain


def _kind(rows: Sequence[Row], column: str, is_short: bool) -> Kind:
    """Ids and times can be copied, so they stay whole, as numbers do, which stand at the right."""
    values = [row.get(column) for row in rows if row.get(column) is not None]
    if values and all(isinstance(value, (int, float)) for value in values):
        return "whole" if all(isinstance(value, bool) for value in values) else "number"
    if is_short:
        return "path"
    is_id = column == "id" or column.endswith("_id")
    return "whole" if is_id or all(isinstance(value, datetime) for value in values) else "text"


def _encodable(value: Any) -> Any:
    """What msgspec does not know: names of tables, paths, decimals of engines."""
    return str(value)

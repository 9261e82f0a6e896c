"""The page on the registry's tables says what the schema says."""

from __future__ import annotations

import re
from pathlib import Path

import sqlalchemy as sa

from lakeward.db import schema
from lakeward.db.types import Flag, Json, UtcTime

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "registry.md"
TYPES = [
    (Flag, "boolean"),
    (UtcTime, "time"),
    (Json, "json"),
    (sa.Text, "text"),
    (sa.LargeBinary, "bytes"),
    (sa.BigInteger, "int64"),
    (sa.Integer, "int32"),
]


def _said_by_the_page() -> dict[str, list[tuple[str, str]]]:
    said = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found = re.findall(r"^\| (\S+) \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
        if lines := [line for line in found if line[0] != "column"]:
            said[title + (" *Watched.*" if "*Watched.*" in text else "")] = lines
    return said


def _line(table: sa.Table, column: sa.Column[object]) -> tuple[str, str]:
    name = f"**{column.name}**" if column.primary_key else column.name
    kind = next(text for type_, text in TYPES if isinstance(column.type, type_))
    left_out = column.name in schema.WATCHED.get(table.name, ())
    return name, kind + (", *null*" if column.nullable else "") + (", *not fed*" if left_out else "")


def test_the_page_lists_every_table_and_column_as_the_schema_has_them() -> None:
    assert _said_by_the_page() == {
        name + (" *Watched.*" if name in schema.WATCHED else ""): [_line(table, column) for column in table.columns]
        for name, table in schema.metadata.tables.items()
    }

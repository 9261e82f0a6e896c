"""How a table would have to grow to hold data whole: columns that it lacks, types that are wider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from lakeward.iceberg import arrow
from lakeward.iceberg.evolution import widens
from lakeward.iceberg.types import TypeDocument
from lakeward.tables.records.properties import EVOLVE


class Growth(NamedTuple):
    """One change of a table's schema: a column that is added, or whose type becomes a wider one."""

    column: str
    type: TypeDocument
    is_new: bool


class SchemaGrows(Exception):
    """Raised before a row is read: the table's policy is to grow first, after which the write begins anew."""

    def __init__(self, changes: list[Growth]) -> None:
        super().__init__(changes)
        self.changes = changes


def check_growth(source: pa.Schema, types: Mapping[str, TypeDocument], properties: Mapping[str, str]) -> None:
    """Raises SchemaGrows: a table with these columns and properties must grow to hold data of the schema."""
    policy = EVOLVE.of(properties)
    if policy == "none":
        return
    known = {name.casefold() for name in types}
    changes = [
        Growth(field.name, arrow.from_arrow(field.type, field.name, 3), is_new=True)
        for field in source
        if field.name.casefold() not in known and not pt.is_null(field.type)
    ]
    if policy == "widen":
        for field in source:
            old = types.get(field.name)
            new = _primitive(field) if isinstance(old, str) else None
            if old is not None and new is not None and new != old and widens(old, new):
                changes.append(Growth(field.name, new, is_new=False))
    if changes:
        raise SchemaGrows(changes)


def _primitive(field: pa.Field) -> TypeDocument | None:
    is_number = pt.is_integer(field.type) or pt.is_floating(field.type) or pt.is_decimal(field.type)
    return arrow.from_arrow(field.type, field.name, 3) if is_number and not pt.is_uint64(field.type) else None

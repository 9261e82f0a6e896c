"""Rows that broke a table's schema, as dead letters: where the table's policy says so, they are kept with the good rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakeward import lossless_json
from lakeward.arrow.broken_rows import BrokenRows
from lakeward.errors import FileRefused, InvalidInput
from lakeward.ops import dead_letters, redaction
from lakeward.ops.records.operations import OperationType
from lakeward.tables.records.files import Batch
from lakeward.tables.records.properties import INVALID_ROWS, INVALID_ROWS_MAX, REDACTED_COLUMNS
from lakeward.tables.records.tables import Table, TableMetadata


def broken_rows(metadata: TableMetadata) -> BrokenRows | None:
    """Where a write's rows go that do not fit; None where the table refuses them."""
    keeps = INVALID_ROWS.of(metadata.properties) == "dead-letter"
    return BrokenRows(INVALID_ROWS_MAX.of(metadata.properties)) if keeps else None


def letters_of(
    table: Table,
    metadata: TableMetadata,
    broken: BrokenRows | None,
    *,
    batch: Batch | None = None,
) -> list[dead_letters.Prepared]:
    """The dead letters of one write, ready to be committed with its good rows.

    A line that is no object may hold the values of redacted columns anywhere: where there are any, it is not kept.
    """
    if broken is None or not broken.rows:
        return []
    redacted = REDACTED_COLUMNS.of(metadata.properties)
    key = {} if batch is None else {"batch": [batch.stream, batch.batch_id]}
    return [
        dead_letters.prepare(
            ".".join(table.namespace),
            table.name,
            OperationType.INSERT,
            _kept(row.record) if isinstance(row.record, Mapping) or not redacted else redaction.HIDDEN,
            error_message=f"{row.reason}: {_without_values(row.message, redacted) or row.message}",
            envelope={"reason": row.reason, **row.origin, **key},
            redact_columns=redacted,
        )
        for row in broken.rows
    ]


def _kept(record: Any) -> Any:
    """The row, with the repr of a value that is of a type the registry cannot keep."""
    try:
        lossless_json.dumps(record)
    except (InvalidInput, ValueError):
        return {name: _kept(value) for name, value in record.items()} if isinstance(record, Mapping) else repr(record)
    return record


def _without_values(message: str, redacted: Collection[str]) -> str | None:
    """In place of a message that names a redacted column, of whose value it may quote a part; None for another."""
    hidden = next((name for name in redacted if name.lower() in message.lower()), None)
    return None if hidden is None else f"column {hidden!r}, whose values are not shown"


@contextmanager
def values_hidden(metadata: TableMetadata) -> Iterator[None]:
    """Refusals in the block quote no value of a redacted column: they are written down with their stack, as errors are."""
    try:
        yield
    except FileRefused as error:
        message = _without_values(str(error), REDACTED_COLUMNS.of(metadata.properties))
        if message is None:
            raise
        # Without the first one in its trace.
        raise FileRefused(error.reason, f"rows do not fit ({error.reason}): {message}") from None

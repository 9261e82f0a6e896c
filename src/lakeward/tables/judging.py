"""The one judge of changes: no version of a table's metadata is kept, and no file is registered, that readers cannot use.

A change is judged against every partition spec that the table has had, the files that are there, and the writes that are under
way. What it misses, such as a write that began before it and is declared after it, is refused when it registers its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.errors import FileRefused, InvalidSchema
from lakeward.iceberg import checks
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents
from lakeward.tables.records.tables import Document, Table, TableMetadata
from lakeward.tables.sql import files


class _Written(Protocol):
    """A file: what it was written under."""

    @property
    def schema_id(self) -> int: ...
    @property
    def spec_id(self) -> int: ...


def check_new(version: TableMetadata, format_version: int) -> None:
    """Judge the first version of a table. Raises InvalidSchema."""
    found = checks.problems(version.schema, version.partition_by, version.sort_by, [], format_version)
    if found:
        raise InvalidSchema(found[0])


def check_change(
    connection: sa.Connection, table: Table, versions: Sequence[TableMetadata], new: TableMetadata, change: str
) -> None:
    """Judge a change of a table's schema, partitions or order; the caller has locked the table.

    What was wrong before is not held against it, so that it can be mended step by step.

    Args:
        versions: those that there are, oldest first.

    Raises:
        InvalidSchema: readers could not use the table, a live file or what a write under way is about to register.
    """
    current = versions[-1]
    if (current.schema, current.partition_by, current.sort_by) == (new.schema, new.partition_by, new.sort_by):
        return
    specs = list({version.spec_id: version.partition_by for version in versions}.values())
    found = checks.problems(new.schema, new.partition_by, new.sort_by, specs, table.format_version)
    if found:
        before = checks.problems(current.schema, current.partition_by, current.sort_by, specs, table.format_version)
        if news := [problem for problem in found if problem not in before]:
            raise InvalidSchema(f"{table.identifier}: {news[0]}")
    _check_written(connection, table, versions, new, change)


def _check_written(
    connection: sa.Connection, table: Table, versions: Sequence[TableMetadata], new: TableMetadata, change: str
) -> None:
    unfit = _unfit(versions, new.schema)
    if not unfit.schemas and not unfit.specs:
        return
    already = _unfit(versions, versions[-1].schema)
    news = _Unfit(
        {i: why for i, why in unfit.schemas.items() if i not in already.schemas},
        {i: why for i, why in unfit.specs.items() if i not in already.specs},
    )
    found = files.written_under(connection, table.table_id, news.schemas, news.specs)
    if found is not None:
        raise InvalidSchema(
            f"{change} of {table.identifier} is refused: live files could not be read then, such as {found.file_path}: "
            f"{news.reasons(found.schema_id, found.spec_id)}; rewrite them under the current metadata or retire them first"
        )
    by_number = {version.metadata_version: version for version in versions}
    for intent in intents.writing(connection, table.table_id, dialect.now(connection)):
        under = by_number.get(intent.metadata_version or 0)
        why = None if under is None else news.reasons(under.schema_version, under.spec_id)
        if why:
            raise InvalidSchema(
                f"{change} of {table.identifier} is refused: a write of {intent.owner} is under way, whose files could not be "
                f"read then: {why}; change the table when it has ended"
            )


def check_files(
    connection: sa.Connection, registry: Registry, table: Table, current: TableMetadata, coming: Iterable[_Written]
) -> None:
    """Judge files that come to a table, in the transaction that registers them, which has locked the table.

    Raises:
        FileRefused: schema_changed, the table has changed since they were written so that they cannot be read in it.
    """
    ids = {(file.schema_id, file.spec_id) for file in coming} - {(current.schema_version, current.spec_id)}
    if not ids:
        return
    versions = registry.metadata_versions(connection, table.table_id, current.metadata_version)
    unfit = _unfit(versions, current.schema)
    schemas, specs = {v.schema_version for v in versions}, {v.spec_id for v in versions}
    for schema_id, spec_id in sorted(ids):
        why = unfit.reasons(schema_id, spec_id)
        if schema_id not in schemas or spec_id not in specs:
            why = f"the table has no schema {schema_id} with a partition spec {spec_id}"
        if why:
            raise FileRefused(
                "schema_changed",
                f"{table.identifier} has changed since the files were written, and they could not be read in it: {why}; "
                "nothing was registered: write them again",
            )


class _Unfit(NamedTuple):
    """Ids of schemas and specs under which no file may stand, and why."""

    schemas: Mapping[int, str]
    specs: Mapping[int, str]

    def reasons(self, schema_id: int, spec_id: int) -> str | None:
        return self.schemas.get(schema_id) or self.specs.get(spec_id)


def _unfit(versions: Sequence[TableMetadata], schema: Document) -> _Unfit:
    by_schema = {version.schema_version: version.schema for version in versions}
    by_spec = {version.spec_id: version.partition_by for version in versions}
    unreadable = {i: checks.unreadable(schema, written) for i, written in by_schema.items()}
    lost = {i: checks.lost_sources(schema, spec) for i, spec in by_spec.items()}
    return _Unfit(
        {i: why for i, why in unreadable.items() if why is not None},
        {
            i: f"they are partitioned by {', '.join(names)} (spec {i}), whose column is gone"
            for i, names in lost.items()
            if names
        },
    )

"""Pages of files' bounds: what a filter judges in place of a row a file.

A page holds the columns of some thousand files, as keys (arrow/keys.py). It is made once, of files that are all registered, behind
the registrations: by a flush, which has the files' rows in hand, or by a scan that misses it. Files that leave the table stay in
their page until all pages are made anew. The files of a table have ascending ids, given under the lock of the table's row: who sees one sees all before
it that there will ever be, but for those that a rollback brings back, which takes the pages away that lack them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from lakeward.batching import batched
from lakeward.db import lock_order
from lakeward.db.retry import retried
from lakeward.errors import LakewardError
from lakeward.iceberg import types
from lakeward.logs import log, log_and_go_on
from lakeward.registry.handle import Registry
from lakeward.tables.records.files import FileStatistics, RegisteredFile
from lakeward.tables.records.tables import TableMetadata
from lakeward.tables.sql import files, pages, tables

if TYPE_CHECKING:
    from lakeward.arrow.keys import Column

SIZE = 4096  # files of a page
PAGES_AT_ONCE = 64  # that are in memory


class PagesMissed(Exception):
    """So many files are in no page that pages are to be made before they are judged."""


def make_if_possible(registry: Registry, table_id: int, known: Iterable[RegisteredFile] = ()) -> None:
    """`make`, for who has something else to do: that it fails, say because the registry cannot be written, is logged."""
    try:
        make(registry, table_id, known)
    except LakewardError as error:
        log_and_go_on(log, "pages_not_made", error, table_id=table_id)


def make(registry: Registry, table_id: int, known: Iterable[RegisteredFile] = ()) -> None:
    """Make pages of the files that are in none, as long as there are enough of them.

    `known`: files of which the caller has the rows, which are then not read.
    """
    with registry.database.read() as connection:
        if not are_missed(connection, table_id):
            return
        is_mostly_gone = _is_mostly_gone(connection, table_id)
    if is_mostly_gone:
        _delete_if_mostly_gone(registry, table_id)
    statistics = {file.file_id: file.statistics for file in known}
    while _make_next(registry, table_id, statistics):
        pass


def _make_next(registry: Registry, table_id: int, known: Mapping[int, FileStatistics]) -> bool:
    with registry.database.read() as connection:
        version = tables.live_version(connection, table_id)
        if version is None:
            return False
        after = pages.last(connection, table_id)
        file_ids = files.ids_after(connection, table_id, after, SIZE)
        if len(file_ids) < SIZE:
            return False
        unknown = [file_id for file_id in file_ids if file_id not in known]
        read = dict(files.statistics_between(connection, table_id, unknown[0], unknown[-1])) if unknown else {}
        versions = registry.metadata_versions(connection, table_id, version)
    statistics = [known[file_id] if file_id in known else read[file_id] for file_id in file_ids]
    return _insert(registry, table_id, after, file_ids, _encoded(file_ids, statistics, versions))


def _encoded(
    file_ids: Sequence[int], statistics: Sequence[FileStatistics], versions: Sequence[TableMetadata]
) -> dict[int, bytes]:
    import numpy as np  # programs that make no pages load it for nothing

    from lakeward.arrow.keys import column

    columns = {i: column(type_, statistics, i) for i, type_ in types_by_id(versions).items()}
    encoded = {i: found.encode() for i, found in columns.items() if found is not None}
    return {pages.IDS: np.array(file_ids, "<i8").tobytes(), **encoded}


def types_by_id(versions: Sequence[TableMetadata]) -> dict[int, str]:
    """The newest type of each primitive column that the table has or had."""
    return {
        column.field_id: column.type
        for version in versions
        for column in types.walk(version.schema)
        if isinstance(column.type, str)
    }


@retried
def _insert(registry: Registry, table_id: int, after: int, file_ids: Sequence[int], columns: dict[int, bytes]) -> bool:
    """Unless another process has made a page meanwhile, or a rollback has brought files back."""
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table_id])
        if pages.last(connection, table_id) != after:
            return False
        there = files.ids_between(connection, table_id, after, file_ids[-1])
        if not set(there).issubset(file_ids):
            return False
        pages.insert(connection, table_id, file_ids[-1], len(file_ids), columns)
    return True


def _is_mostly_gone(connection: sa.Connection, table_id: int) -> bool:
    """Whether more files of the pages have left the table than are there."""
    found = tables.by_id(connection, table_id)
    live = 0 if found is None else found.file_count + found.landing_file_count
    return pages.file_count(connection, table_id) > 2 * live + 2 * SIZE


@retried
def _delete_if_mostly_gone(registry: Registry, table_id: int) -> None:
    with registry.database.transaction() as connection:
        lock_order.tables(connection, [table_id])
        if _is_mostly_gone(connection, table_id):
            pages.delete_from(connection, table_id, 0)


# Reading ------------------------------------------------------------------------------------------------------------------
def columns_of(
    connection: sa.Connection, table_id: int, field_ids: frozenset[int]
) -> Iterator[tuple[Any, Mapping[int, Column]]]:
    """Page by page, the ids of its files (an array) and their columns."""
    import numpy as np

    from lakeward.arrow.keys import Column

    for ends in batched(pages.ends(connection, table_id), PAGES_AT_ONCE):
        for page in pages.load(connection, table_id, ends, field_ids):
            ids = np.frombuffer(page.pop(pages.IDS), "<i8")
            yield ids, {field_id: Column.decode(data) for field_id, data in page.items()}


def rest(connection: sa.Connection, table_id: int) -> Iterator[list[tuple[int, FileStatistics]]]:
    """The files that are in no page, some at a time."""
    after = pages.last(connection, table_id)
    while rows := files.statistics_after(connection, table_id, after, SIZE):
        yield rows
        after = rows[-1][0]


def are_missed(connection: sa.Connection, table_id: int) -> bool:
    """Whether enough files are in no page that one can be made."""
    after = pages.last(connection, table_id)
    return files.count_after(connection, table_id, after, SIZE) == SIZE

"""Which files of a table a filter leaves, without reading the rows of the others.

A filter of partitions judges the distinct partitions, and an index gives their files. One of columns judges the files' bounds, in
pages or, where the partitions leave few files, in their rows. Both pass over no file that the reader wants; it judges the rows that
remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa

from lakeward.batching import batched
from lakeward.tables import pages
from lakeward.tables.records.files import RegisteredFile
from lakeward.tables.sql import files, stats

if TYPE_CHECKING:
    from lakeward.arrow.pruning import Pruner

AT_ONCE = 1_000  # rows, or partitions, that one query asks for
SMALL = 64  # files of a table that are judged by their rows at once
FEW = 1_000  # files whose own rows are read before the table's pages


class Reader(Protocol):
    """What reads a table's files, made for the versions of its metadata."""

    @property
    def pruner(self) -> Pruner | None: ...

    def wants(self, file: RegisteredFile) -> bool: ...


def wanted_files(
    connection: sa.Connection, table_id: int, reader: Reader, *, without_pages: bool = True
) -> Iterator[RegisteredFile]:
    """The live files that a reader wants, by file_id.

    Raises:
        PagesMissed: pages are to be made first, unless the caller can do `without_pages`.
    """
    pruner = reader.pruner
    chosen = None if pruner is None else _chosen(connection, table_id, pruner, without_pages)
    if pruner is None or chosen is None:
        yield from filter(reader.wants, files.live_in_pages(connection, table_id, AT_ONCE))
        return
    for part in batched(sorted(chosen), AT_ONCE):
        rows = sorted(files.live_by_ids(connection, table_id, part), key=lambda file: file.file_id)
        answers = pruner.files_may_match([file.statistics for file in rows])
        yield from (file for file, may_match in zip(rows, answers, strict=True) if may_match and reader.wants(file))


def _chosen(connection: sa.Connection, table_id: int, pruner: Pruner, without_pages: bool) -> set[int] | None:
    """The files that neither partitions nor pages rule out; None where all are to be judged by their rows."""
    field_ids = pruner.field_ids
    if field_ids is None:
        return None
    counted = stats.partitions(connection, table_id)
    if sum(count for _, _, count in counted) <= SMALL:
        return None
    partitions = sorted({(spec_id, key) for spec_id, key, _ in counted})
    kept = _kept(partitions, pruner)
    if len(kept) == len(partitions):
        return set(_by_columns(connection, table_id, pruner, field_ids, without_pages)) if field_ids else None
    chosen = _inside(connection, table_id, kept)
    if field_ids and len(chosen) > FEW:
        chosen.intersection_update(_by_columns(connection, table_id, pruner, field_ids, without_pages))
    return chosen


def _kept(partitions: list[tuple[int, str]], pruner: Pruner) -> list[tuple[int, str]]:
    kept = []
    for spec_id, group in groupby(partitions, key=lambda each: each[0]):
        keys = [key for _, key in group]
        answers = pruner.partitions_may_match(spec_id, keys)
        kept += [(spec_id, key) for key, may_match in zip(keys, answers, strict=True) if may_match]
    return kept


def _inside(connection: sa.Connection, table_id: int, partitions: list[tuple[int, str]]) -> set[int]:
    return {
        file_id
        for spec_id, group in groupby(partitions, key=lambda each: each[0])
        for part in batched((key for _, key in group), AT_ONCE)
        for file_id in files.ids_in_partitions(connection, table_id, spec_id, part)
    }


def _by_columns(
    connection: sa.Connection, table_id: int, pruner: Pruner, field_ids: frozenset[int], without_pages: bool
) -> Iterator[int]:
    """The files whose bounds a filter does not rule out: by the pages, and by the rows of those that are in none."""
    if not without_pages and pages.are_missed(connection, table_id):
        raise pages.PagesMissed
    for ids, columns in pages.columns_of(connection, table_id, field_ids):
        yield from ids[pruner.columns_may_match(columns, len(ids))].tolist()
    for rows in pages.rest(connection, table_id):
        answers = pruner.files_may_match([each for _, each in rows])
        yield from (file_id for (file_id, _), may_match in zip(rows, answers, strict=True) if may_match)

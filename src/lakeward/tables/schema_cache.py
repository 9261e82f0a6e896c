"""Metadata versions of tables in memory: the one cache of them, behind `Registry.metadata_version`.

It is asked for a version by its number, which the caller has from its own read of the table: what is found is never older
than what the caller knows, however late the news of a change comes. Lakeward never changes a version that it has written.
SQL typed by hand may: the schema manager, which is told of it, then has the version forgotten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict

import msgspec

from lakeward.frozen_documents import memory_of, shared
from lakeward.tables.records.tables import TableMetadata

ENTRY_BYTES = 464  # what an entry takes beside its version
_DOCUMENTS = ("schema", "partition_by", "sort_by", "properties", "engine_config")


class CacheStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache holds now, and how it has served since it was made."""

    hits: int
    misses: int
    hit_ratio: float  # of all that was asked for, 0 before anything was
    cache_size: int  # versions
    memory_usage: int  # bytes
    evictions: int  # versions that had to leave for others


class SchemaCache:
    """Bounded by versions and bytes; what was used longest ago leaves first. Threads share it.

    What is put in was read at some moment, and what is forgotten meanwhile must not come back by it: a reader takes `mark`
    before it reads, and `put` with a mark from before anything was forgotten does nothing.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._limits = (max_entries, max_bytes)
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, int], tuple[TableMetadata, int]] = OrderedDict()
        self._of_table: defaultdict[int, set[int]] = defaultdict(set)
        self._bytes = 0
        self._forgotten = 0  # how often anything was
        self._suspended = False
        self._hits = self._misses = self._evictions = 0

    def get(self, table_id: int, version: int) -> TableMetadata | None:
        """A version, if it is here and the cache is in use; counted as a hit or a miss."""
        with self._lock:
            found = None if self._suspended else self._entries.get((table_id, version))
            if found is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end((table_id, version))
            return found[0]

    def newest(self, table_id: int) -> TableMetadata | None:
        """The newest version of a table that is here. Counts for nothing."""
        with self._lock:
            held = self._of_table.get(table_id)
            return self._entries[table_id, max(held)][0] if held else None

    def holds(self, table_id: int, version: int) -> bool:
        """Counts for nothing."""
        return (table_id, version) in self._entries

    @property
    def is_suspended(self) -> bool:
        return self._suspended

    def mark(self) -> int:
        return self._forgotten

    def put(self, version: TableMetadata, mark: int, *, evict: bool = True) -> TableMetadata:
        """Remember a version that was read after `mark`; what is given back is the same, and cannot be changed.

        One that is larger than the whole cache is not kept; without `evict`, nor is one that others had to leave for.
        """
        version = as_shared(version)
        size = memory_of(version) + ENTRY_BYTES
        key = (version.table_id, version.metadata_version)
        with self._lock:
            if mark != self._forgotten:
                return version
            if (present := self._entries.get(key)) is not None:
                return present[0]
            entries, most = self._limits
            if size > most or (not evict and (len(self._entries) >= entries or self._bytes + size > most)):
                return version
            self._entries[key] = (version, size)
            self._of_table[version.table_id].add(version.metadata_version)
            self._bytes += size
            self._shrink()
        return version

    def forget(self, table_id: int, version: int | None = None) -> None:
        """Drop a version, or all of a table's."""
        with self._lock:
            self._forgotten += 1
            for each in list(self._of_table.get(table_id, ())) if version is None else [version]:
                self._remove((table_id, each))

    def clear(self) -> None:
        with self._lock:
            self._forgotten += 1
            self._entries.clear()
            self._of_table.clear()
            self._bytes = 0

    def suspend(self) -> None:
        """From now on nothing is found here, until `resume`."""
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False

    def limit(self, max_entries: int, max_bytes: int) -> None:
        """Set both bounds; what is too much leaves at once."""
        with self._lock:
            self._limits = (max_entries, max_bytes)
            self._shrink()

    @property
    def limits(self) -> tuple[int, int]:
        """(versions, bytes)"""
        return self._limits

    def stats(self) -> CacheStats:
        with self._lock:
            asked = self._hits + self._misses
            return CacheStats(
                hits=self._hits,
                misses=self._misses,
                hit_ratio=self._hits / asked if asked else 0.0,
                cache_size=len(self._entries),
                memory_usage=self._bytes,
                evictions=self._evictions,
            )

    def _shrink(self) -> None:
        entries, most = self._limits
        while len(self._entries) > entries or self._bytes > most:
            self._remove(next(iter(self._entries)))
            self._evictions += 1

    def _remove(self, key: tuple[int, int]) -> None:
        gone = self._entries.pop(key, None)
        if gone is None:
            return
        self._bytes -= gone[1]
        held = self._of_table[key[0]]
        held.discard(key[1])
        if not held:
            del self._of_table[key[0]]


def as_shared(version: TableMetadata) -> TableMetadata:
    """The same version, whose documents cannot be changed."""
    return msgspec.structs.replace(version, **{name: shared(getattr(version, name)) for name in _DOCUMENTS})

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from lakeward.frozen_documents import memory_of
from lakeward.tables.records.tables import TableMetadata
from lakeward.tables.schema_cache import ENTRY_BYTES, SchemaCache, as_shared

PLENTY = 1 << 30


def made(table_id: int, version: int = 1, columns: int = 3) -> TableMetadata:
    fields = [{"id": i, "name": f"c{i}", "type": "long", "required": False} for i in range(1, columns + 1)]
    return TableMetadata(
        table_id=table_id,
        metadata_version=version,
        schema_version=0,
        schema={"type": "struct", "schema-id": 0, "fields": fields},
        spec_id=0,
        partition_by={"spec-id": 0, "fields": []},
        sort_order_id=0,
        sort_by={"order-id": 0, "fields": []},
        properties={},
        storage_engine="local",
        engine_config={},
        format="parquet",
        compression="zstd",
        change="create",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def put(cache: SchemaCache, version: TableMetadata) -> None:
    cache.put(version, cache.mark())


def size(version: TableMetadata) -> int:
    return memory_of(as_shared(version)) + ENTRY_BYTES


def test_what_was_used_longest_ago_leaves_first() -> None:
    cache = SchemaCache(2, PLENTY)
    put(cache, made(1))
    put(cache, made(2))
    assert cache.get(1, 1) is not None
    put(cache, made(3))
    assert [cache.holds(i, 1) for i in (1, 2, 3)] == [True, False, True]
    assert cache.stats().evictions == 1


def test_bytes_bound_it_as_entries_do_and_are_given_back() -> None:
    one = size(made(1))
    cache = SchemaCache(100, 3 * one + one // 2)
    for table_id in range(10):
        put(cache, made(table_id))
        assert cache.stats().memory_usage <= 3 * one + one // 2
    assert cache.stats().cache_size == 3
    cache.forget(9)
    assert abs(cache.stats().memory_usage - 2 * one) < 100
    cache.clear()
    assert (cache.stats().memory_usage, cache.stats().cache_size) == (0, 0)


def test_one_that_is_larger_than_all_leaves_the_others_alone() -> None:
    cache = SchemaCache(100, 2 * size(made(1)))
    put(cache, made(1))
    put(cache, made(2, columns=1000))
    assert (cache.holds(1, 1), cache.holds(2, 1)) == (True, False)


def test_lower_limits_hold_at_once() -> None:
    cache = SchemaCache(100, PLENTY)
    for table_id in range(10):
        put(cache, made(table_id))
    cache.limit(4, PLENTY)
    assert cache.stats().cache_size == 4
    cache.limit(0, 0)
    assert (cache.stats().cache_size, cache.stats().memory_usage, cache.stats().evictions) == (0, 0, 10)


def test_hits_and_misses_are_counted_and_looking_without_asking_is_not() -> None:
    cache = SchemaCache(10, PLENTY)
    assert cache.stats().hit_ratio == 0.0
    put(cache, made(1))
    cache.get(1, 1)
    cache.get(1, 1)
    cache.get(1, 1)
    cache.get(1, 2)
    cache.newest(1)
    cache.holds(1, 1)
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.hit_ratio) == (3, 1, 0.75)


def test_what_was_read_before_something_was_forgotten_does_not_come_back() -> None:
    cache = SchemaCache(10, PLENTY)
    mark = cache.mark()
    cache.forget(1)
    assert cache.put(made(1), mark).table_id == 1
    assert not cache.holds(1, 1)
    mark = cache.mark()
    cache.clear()
    cache.put(made(1), mark)
    assert not cache.holds(1, 1)


def test_nothing_is_found_while_it_is_suspended_and_what_was_there_is_afterwards() -> None:
    cache = SchemaCache(10, PLENTY)
    put(cache, made(1))
    cache.suspend()
    assert cache.get(1, 1) is None
    cache.resume()
    assert cache.get(1, 1) is not None


def test_a_table_is_forgotten_with_all_its_versions_or_with_one() -> None:
    cache = SchemaCache(10, PLENTY)
    for version in (1, 2, 3):
        put(cache, made(1, version))
    put(cache, made(2))
    cache.forget(1, 3)
    newest = cache.newest(1)
    assert newest is not None
    assert newest.metadata_version == 2
    cache.forget(1)
    assert (cache.newest(1), cache.stats().cache_size) == (None, 1)


def test_without_evicting_nothing_that_is_there_has_to_leave() -> None:
    cache = SchemaCache(1, PLENTY)
    put(cache, made(1))
    cache.put(made(2), cache.mark(), evict=False)
    assert (cache.holds(1, 1), cache.holds(2, 1)) == (True, False)


def test_the_bytes_are_the_sum_of_what_is_there_after_any_use_by_threads() -> None:
    limit = 40 * size(made(1, columns=10))
    cache = SchemaCache(50, limit)
    start = threading.Barrier(4)

    def use(seed: int) -> None:
        chance = random.Random(seed)
        start.wait()
        for _ in range(800):
            table_id, version = chance.randrange(30), chance.randrange(1, 4)
            action = chance.random()
            if action < 0.5:
                put(cache, made(table_id, version, columns=chance.randrange(1, 20)))
            elif action < 0.9:
                cache.get(table_id, version)
            elif action < 0.999:
                cache.forget(table_id, version if action < 0.95 else None)
            else:
                cache.clear()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    held = dict(cache._entries)
    stats = cache.stats()
    assert stats.memory_usage == sum(size(version) for version, _ in held.values()) <= limit
    assert stats.cache_size == len(held) <= 50
    assert {(table, version) for table, all_ in cache._of_table.items() for version in all_} == set(held)

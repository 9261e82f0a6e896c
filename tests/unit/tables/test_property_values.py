"""Properties of tables are declared once, and what cannot be meant is refused by name."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.errors import InvalidInput
from lakeward.tables.records import properties
from lakeward.tables.records.properties import FLAG, INT, LONG, PROPERTIES, Property, check


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit.retry.num-retries", "99999999999"),
        ("commit.retry.num-retries", "many"),
        ("history.expire.min-snapshots-to-keep", "99999999999"),
        ("history.expire.min-snapshots-to-keep", "0"),
        ("history.expire.max-snapshot-age-ms", "99999999999999999999"),
        ("history.expire.max-snapshot-age-ms", "-1"),
        ("commit.manifest.min-count-to-merge", "2147483648"),
        ("write.parquet.compression-codec", "nonsense"),
        ("write.target-file-size-bytes", "128 MB"),
        ("write.target-file-size-bytes", "0"),
        ("write.target-file-size-bytes", "١"),
        ("write.distribution-mode", "hashed"),
        ("write.metadata.metrics.default", "truncate(0)"),
        ("write.metadata.metrics.column.name", "some"),
        ("write.parquet.bloom-filter-fpp.column.id", "1"),
        ("write.parquet.bloom-filter-enabled.column.id", "yes"),
        ("read.split.target-size", "0"),
        ("schema.name-mapping.default", "{}"),
        ("schema.name-mapping.default", "[{"),
        ("schema.name-mapping.default", '[{"field-id": 1, "names": [1]}]'),
        ("lakeward.footers", "sometimes"),
        ("lakeward.invalid-rows", "drop"),
        ("lakeward.invalid-rows.max", "0"),
        ("lakeward.compaction.min-files", "1"),
        ("lakeward.snapshot.every-seconds", "nan"),
        ("lakeward.snapshot.every-seconds", "inf"),
        ("format-version", "1"),
        ("uuid", "x"),
        ("current-snapshot-id", "1"),
        ("encryption.key-id", "k"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_the_name_of_its_property(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=name.replace(".", r"\.")):
        check(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit.retry.num-retries", "10"),
        ("history.expire.min-snapshots-to-keep", str(INT)),
        ("history.expire.max-snapshot-age-ms", str(LONG)),
        ("write.parquet.compression-codec", "ZSTD"),
        ("write.metadata.metrics.default", "truncate(16)"),
        ("write.metadata.metrics.column.a.b", "full"),
        ("schema.name-mapping.default", '[{"field-id": 1, "names": ["id", "ID"], "fields": [{"names": []}]}]'),
        ("lakeward.compaction.enabled", "FALSE"),
        ("owner", "ann"),
        ("comment", ""),
        ("write.parquet.something-new", "1"),
    ],
)
def test_a_value_of_its_kind_and_a_property_of_others_are_taken(name: str, value: str) -> None:
    check(name, value)


def test_an_own_property_that_there_is_not_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(
        InvalidInput, match=r"'lakeward\.snapshot\.every-second'; did you mean 'lakeward\.snapshot\.every-seconds'"
    ):
        check("lakeward.snapshot.every-second", "1")
    with pytest.raises(InvalidInput, match=r"there are lakeward\.footers, "):
        check("lakeward.zzz", "1")


def test_every_default_is_a_value_of_its_kind() -> None:
    def text(each: Property[Any]) -> str:
        return str(each.default).lower() if each.kind is FLAG else str(each.default)

    for each in (*PROPERTIES.values(), *properties.TOPIC_CONFIG.values()):
        if each.default not in (None, ()):
            assert each.value(text(each)) == each.default


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_the_levels_that_a_codec_is_said_to_have_are_those_that_files_can_be_written_with(codec: str) -> None:
    accepted = []
    for level in (-(1 << 17) - 1, -(1 << 17), 0, 1, 9, 10, 12, 13, 22, 23):
        try:
            properties.check_level({properties.COMPRESSION_LEVEL.name: str(level)}, codec)
        except InvalidInput:
            continue
        accepted.append(level)
        pq.write_table(pa.table({"a": [1, 2]}), io.BytesIO(), compression=codec, compression_level=level)
    assert (accepted != []) == (codec in ("zstd", "gzip", "lz4"))
    if codec not in ("snappy", "none"):
        assert pa.Codec.maximum_compression_level(codec) in accepted


def test_a_level_that_the_engines_codec_has_not_is_refused_too() -> None:
    given = {"write.parquet.compression-level": "15", "write.parquet.compression-codec": "gzip"}
    with pytest.raises(InvalidInput, match="compression gzip: it has levels from 1 to 9"):
        properties.check_level(given, "zstd")

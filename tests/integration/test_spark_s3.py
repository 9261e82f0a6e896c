"""The whole way on object storage: staged by Spark, registered, read by Spark, PyIceberg and scan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import DataFrame, SparkSession

import lakeward
from lakeward import MetadataStore, TopicConfig
from lakeward.errors import FileRefused
from lakeward.storage.engines import engine_for
from tests.support.s3 import S3


@pytest.fixture
def lake(tmp_path: Path, s3: S3, request: pytest.FixtureRequest) -> Iterator[lakeward.Lake]:
    with lakeward.connect(
        registry=tmp_path / "registry.db",
        warehouse=s3.warehouse,
        s3_endpoint=s3.endpoint,
        s3_region=s3.region,
        s3_access_key=s3.access_key,
        s3_secret_key=s3.secret_key,
        **getattr(request, "param", {}),
    ) as opened:
        yield opened


def test_rows_on_object_storage_are_read_by_every_engine(lake: lakeward.Lake, spark: SparkSession, s3: S3) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("id", "concat('n/ %', id % 3) AS name")
    for name, partition_by in (("t.plain", []), ("t.parts", ["name"])):
        lake.create_table(name, frame.schema, partition_by=partition_by)
        lake.append(name, frame)
        assert lake.table(name).row_count == 100
        assert spark.table(f"lakeward.{name}").where("name = 'n/ %1'").count() == 33
        assert lake.scan(name, filter="name = 'n/ %1'").read_all().num_rows == 33
        catalog = RestCatalog(
            "lakeward",
            uri=lake.catalog_url,
            token=lake.token or "",
            **{"s3.access-key-id": s3.access_key, "s3.secret-access-key": s3.secret_key},
        )
        assert catalog.load_table(name).scan().to_arrow().num_rows == 100


@pytest.mark.parametrize("lake", [{"merge_in_process_bytes": 0}, {}], ids=["spark", "here"], indirect=True)
@pytest.mark.parametrize("is_flushed", [True, False])
def test_small_files_on_object_storage_are_merged_and_read_back_by_every_engine(
    lake: lakeward.Lake, spark: SparkSession, s3: S3, is_flushed: bool
) -> None:
    name = "t.small"
    lake.create_table(name, {"id": "long", "name": "string"}, partition_by=["name"])
    for start in range(0, 180, 30):
        lake.append(name, [{"id": i, "name": f"n/ %{i % 3}"} for i in range(start, start + 30)])
    if is_flushed:
        lake.flush(name)
    result = lake.compact(name, spark)
    assert (result.files_before, result.files_after, result.rows) == (18, 3, 180)

    def expect_rows() -> None:
        assert sorted(row["id"] for row in spark.table(f"lakeward.{name}").collect()) == list(range(180))
        assert spark.table(f"lakeward.{name}").where("name = 'n/ %1'").count() == 60
        assert sorted(lake.scan(name).read_all()["id"].to_pylist()) == list(range(180))

    expect_rows()
    assert lake.audit(name).findings == []
    engine = engine_for(lake.table(name).location, lake.settings.engine_config)
    before = {info.location for info in engine.list(lake.table(name).location + "/data/")}
    assert before >= {file.file_path for file in lake.files(name)}
    lake.clean()
    expect_rows()


def test_a_refused_write_leaves_no_object(lake: lakeward.Lake, spark: SparkSession, s3: S3) -> None:
    lake.create_table("t.x", {"id": "long not null"})
    with pytest.raises(FileRefused, match="'id'"):
        lake.append("t.x", spark.range(0, 100, 1, 2).selectExpr("if(id = 99, null, id) AS id"))
    engine = engine_for(lake.table("t.x").location, lake.settings.engine_config)
    assert list(engine.list(lake.table("t.x").location + "/data/")) == []


def test_a_topic_on_object_storage_is_written_and_read_by_spark_and_without(
    lake: lakeward.Lake, spark: SparkSession, s3: S3
) -> None:
    MetadataStore(lake).create_topic(TopicConfig("orders", 2))
    lake.log.append("orders", [{"key": str(i), "value": f"a{i}"} for i in range(20)])
    lake.log.append("orders", spark.range(30).selectExpr("cast(id AS string) AS key", "concat('b', id) AS value"))
    scanned = {(r["partition"], r["offset"], r["value"]) for b in lake.log.scan("orders") for r in b.to_pylist()}
    assert len(scanned) == 50
    chosen = ("partition", "offset", "value")

    def read(frame: DataFrame) -> set[tuple[int, int, bytes]]:
        return {(row[0], row[1], bytes(row[2])) for row in frame.select(*chosen).collect()}

    assert read(lake.log.read(spark, "orders")) == scanned
    settings = {
        "registry": lake.settings.registry,
        "warehouse": s3.warehouse,
        "s3_endpoint": s3.endpoint,
        "s3_region": s3.region,
        "s3_access_key": s3.access_key,
        "s3_secret_key": s3.secret_key,
        "subscribe": "orders",
    }
    assert read(spark.read.format("lakeward").options(**settings).load()) == scanned
    assert lake.log.compact_segments("orders").before >= 2
    assert read(lake.log.read(spark, "orders")) == scanned
    topic = MetadataStore(lake).get_topic("orders")
    assert topic is not None
    engine = engine_for(topic.location, lake.settings.engine_config)
    registered = {s.location for p in range(2) for s in MetadataStore(lake).get_segments("orders", p)}
    assert registered <= {info.location for info in engine.list(topic.location + "/")}

"""The options of a Spark session on the catalog."""

from __future__ import annotations

from lakeward.spark.session import spark_conf


def test_there_is_a_catalog_to_read_one_to_load_without_a_flush_and_one_to_stage_in() -> None:
    conf = spark_conf("http://127.0.0.1:8181", "secret", "lake", jars=False)
    assert conf["spark.sql.catalog.lake.uri"] == conf["spark.sql.catalog.lake_ingest.uri"] == "http://127.0.0.1:8181"
    assert conf["spark.sql.catalog.lake_ingest.header.X-Lakeward-Pending"] == "skip"
    assert "spark.sql.catalog.lake.header.X-Lakeward-Pending" not in conf
    assert conf["spark.sql.catalog.lake_stage"].endswith("SparkRewriteTableCatalog")
    assert conf["spark.sql.defaultCatalog"] == "lake"


def test_tables_are_not_cached_so_that_other_writers_rows_show() -> None:
    conf = spark_conf("http://127.0.0.1:8181", None, jars=False)
    assert conf["spark.sql.catalog.lakeward.cache-enabled"] == "false"


def test_without_a_token_none_is_sent() -> None:
    assert not any("token" in key for key in spark_conf("http://127.0.0.1:8181", None, jars=False))


def test_secrets_stand_only_under_names_that_spark_hides() -> None:
    config = {
        "endpoint": "http://127.0.0.1:9000",
        "access_key": "WORD-A",
        "secret_key": "WORD-B",
        "session_token": "WORD-C",
    }
    conf = spark_conf("http://127.0.0.1:8181", "WORD-D", s3=config, jars=False)
    # Spark's own default of spark.redaction.regex.
    shown = {key: value for key, value in conf.items() if not any(w in key for w in ("secret", "password", "token"))}
    hidden = {key: value for key, value in shown.items() if "access.key" not in key and "access-key" not in key}
    assert "WORD" not in str(hidden)


def test_an_endpoint_of_ones_own_is_addressed_by_path_and_needs_no_region() -> None:
    conf = spark_conf("http://127.0.0.1:8181", None, s3={"endpoint": "http://127.0.0.1:9000"}, jars=False)
    assert conf["spark.sql.catalog.lakeward.s3.path-style-access"] == "true"
    assert conf["spark.sql.catalog.lakeward.client.region"] == "us-east-1"
    assert conf["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"


def test_amazons_own_store_gets_neither() -> None:
    conf = spark_conf("http://127.0.0.1:8181", None, s3={"region": "eu-west-1"}, jars=False)
    assert "spark.sql.catalog.lakeward.s3.path-style-access" not in conf
    assert conf["spark.sql.catalog.lakeward.client.region"] == "eu-west-1"


def test_only_writers_get_the_file_system_that_leaves_no_checksum_files_for_scans_cannot_use_it() -> None:
    conf = spark_conf("http://127.0.0.1:8181", None, jars=False)
    assert conf["spark.sql.catalog.lakeward_ingest.hadoop.fs.file.impl"].endswith("RawLocalFileSystem")
    assert "spark.sql.catalog.lakeward.hadoop.fs.file.impl" not in conf

"""The staged Spark write: Iceberg's own Spark writer, without its commit.

A table is put into Iceberg's cache of tables to be rewritten, under an id; Spark writes to it through the catalog that shows
this cache; and the finished data files are taken from the coordinator that a rewrite would take them from. The registry
then commits them, not Iceberg. Field ids, partition values, metrics and split offsets so are Iceberg's for every type and
transform. These classes are Iceberg's inner ones: they are pinned by the version of its runtime, and are used here alone.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from lakeward.arrow import splitting
from lakeward.arrow.growth import check_growth
from lakeward.arrow.nested import null_in_required
from lakeward.arrow.statistics import from_footer
from lakeward.arrow.target import TableTarget
from lakeward.errors import (
    ExecutorsUnfit,
    FileRefused,
    InvalidInput,
    InvalidSetting,
    ServerUnavailable,
    SparkMissing,
    StorageError,
    TableNotFound,
    says,
)
from lakeward.iceberg import types
from lakeward.iceberg.partitions import canonical_partition, partition_path
from lakeward.iceberg.transforms import may_overflow
from lakeward.spark.broken_rows import good_rows
from lakeward.spark.catalog_server import answers
from lakeward.spark.columns import arrow_schema_of, matched_columns, quoted
from lakeward.spark.executors import check_storage, master_of, no_keys, writing
from lakeward.spark.jvm import APPEND, active, first_line, gateway, java_class, new, static
from lakeward.spark.rules import BROKEN, checked, row_rules
from lakeward.spark.session import ingest_catalog, stage_catalog
from lakeward.spark.values import MARKS, judged
from lakeward.storage.engine import StorageEngine
from lakeward.storage.parquet_footers import encode_footer, read_footer
from lakeward.tables.records.files import DataFile, FileStatistics
from lakeward.tables.records.properties import DISTRIBUTION_MODE, FANOUT, METRICS_COLUMNS
from lakeward.tables.records.tables import Document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FOOTER_THREADS = 8
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")

# pyarrow's names of codecs -> parquet-java's, where they differ.
_CODECS = {"none": "uncompressed", "lz4": "lz4_raw"}


def write_spark(target: TableTarget, dataframe: DataFrame, catalog: str) -> list[DataFile]:
    """Write a DataFrame's rows as data files below the intent's prefix. Nothing is committed; the files are durable.

    Rows are spread over files as Spark's partitions have them, each task with one open file per partition of the table,
    so that nothing is shuffled, unless the table's own write.distribution-mode asks for it. A table with a sort order gets
    files that are each sorted.

    Args:
        dataframe: columns by name, see `matched_columns`. Without rows no file is written.
        catalog: the name under which the DataFrame's session knows Lakeward's catalog.

    Rows that do not fit go to `target.broken`, if there is one (see `broken_rows`).

    Raises:
        SparkConnectUnsupported: the session has no JVM that this process can reach.
        ServerUnavailable: no server answers where its catalog leads.
        ExecutorsUnfit: the executors of a cluster lack keys, or a folder of the warehouse that they share.
        InvalidSetting: the session lacks the catalog's options, or they lead to another server.
        InvalidInput, FileRefused: the columns do not fit; nothing was written.
        FileRefused: null_in_required, wrong_type for a value that does not fit or a text that is no UTF-8, or wrong_partition
            (one that no manifest holds), found while writing.
        SchemaGrows: the table is to grow first; nothing was written.
        TableNotFound: the table is gone, or another has its name by now.
    """
    loaded = load(dataframe.sparkSession, target, catalog)
    name = str(target.table.identifier)
    wanted = _spark_schema(loaded.java, loaded.table, name)
    types = {field["name"]: field["type"] for field in loaded.schema["fields"]}
    check_growth(arrow_schema_of(dataframe.schema), types, target.metadata.properties)
    rows = judged(dataframe, wanted, name, target.broken)
    marks = [quoted(mark) for mark in MARKS if mark in rows.columns]
    columns = matched_columns(rows.drop(*MARKS).schema, wanted, name, _partition_sources(loaded.schema, loaded.spec))
    rows = rows if columns is None else rows.selectExpr(*columns, *marks)
    own = rows.drop(*MARKS).schema
    rules = row_rules(own, loaded.schema)
    sound = checked(own, loaded.schema, rules)
    if target.broken is None:
        return write_rows(loaded, rows.selectExpr(*sound), target, catalog)
    repairable = [rule for each in rules for rule in each if rule.kind != "damaged"]
    with good_rows(rows, repairable, target.broken) as good:
        return write_rows(loaded, good.selectExpr(*sound), target, catalog)


class Loaded(NamedTuple):
    """A table as the session's catalog has it, and the JVM that holds it (both Any: py4j has no types)."""

    java: Any
    table: Any
    schema: Document
    spec: Document


def load(spark: SparkSession, target: TableTarget, catalog: str, way_out: str = APPEND) -> Loaded:
    """The table to write to. What is pending is left so. Raises what `write_spark` says of the session and the table.

    `way_out`: from a session without a JVM.
    """
    java = gateway(spark, way_out)
    _check_catalog(spark, catalog)
    table = _load(java, spark, target, catalog)
    check_storage(spark, target, lambda rows, prefix: _try(java, rows, table, prefix, target, catalog))
    spec = cast(Document, msgspec.json.decode(static(java, "PartitionSpecParser.toJson")(table.spec())))
    schema = cast(Document, msgspec.json.decode(static(java, "SchemaParser.toJson")(table.schema())))
    return Loaded(java, table, schema, spec)


def write_rows(
    loaded: Loaded, rows: DataFrame, target: TableTarget, catalog: str, options: Mapping[str, str] | None = None
) -> list[DataFile]:
    """Write rows that have the table's columns; durable, and not committed.

    `options`: Iceberg's write options for this write, over the table's own.
    """
    java, table, schema, spec = loaded
    staged = _with_properties(java, table, _properties(target, schema, spec))
    written = _write_staged(java, rows, staged, target, catalog, options or {})
    files = [_data_file(content, schema, spec, target) for content in written]
    target.engine.sync([file.path for file in files])
    return _completed(files, target.engine, loaded)


# The session and the table ------------------------------------------------------------------------------------------------


def _check_catalog(spark: SparkSession, catalog: str) -> None:
    for name in (ingest_catalog(catalog), stage_catalog(catalog)):
        if spark.conf.get(f"spark.sql.catalog.{name}", None) is None:
            raise InvalidSetting(
                f"this Spark session has no catalog {name!r}; make the DataFrame in a session of lake.spark(), or give the "
                "options of lake.spark_conf() to SparkSession.builder before the session starts"
            )


def _load(java: Any, spark: SparkSession, target: TableTarget, catalog: str) -> Any:
    """The table as the session's catalog has it (a Java BaseTable), the same one that the registry means."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    identifier = target.table.identifier
    name = ingest_catalog(catalog)
    full_name = ".".join(quoted(part) for part in (name, *identifier.namespace, identifier.name))
    try:
        with active(java, spark):
            # First the catalog alone: Spark takes the name of one that cannot be loaded for a namespace.
            spark._jsparkSession.sessionState().catalogManager().catalog(name)
            table = static(java, "spark.Spark3Util.loadIcebergTable")(spark._jsparkSession, full_name)
    except (Py4JError, PySparkException) as error:
        if says(error, "Cannot find catalog plugin class", "does not exist in the JVM"):
            raise SparkMissing(
                "this Spark session lacks Iceberg's runtime; start it with the options of lake.spark_conf(), which name the jar"
            ) from error
        if says(error, "TABLE_OR_VIEW_NOT_FOUND", "NoSuchTableException", "NoSuchNamespaceException"):
            raise _gone(target, catalog, "it has none of that name") from error
        url = spark.conf.get(f"spark.sql.catalog.{name}.uri", None)
        if url is not None and not answers(url):
            raise ServerUnavailable(
                f"no server answers at {url}, where the session's catalog {name!r} leads: start `lakeward serve` there again and go "
                "on in this session. If it was a lake's own that is closed now, or the setting server_url names others beside it, "
                "take a session from lake.spark(), which leads to one that answers"
            ) from error
        raise InvalidSetting(
            f"the session's catalog {name!r} cannot be used ({java_class(error)}); make the session with the options of "
            "lake.spark_conf()"
        ) from error
    if str(table.uuid()) != target.table.table_uuid:
        raise _gone(target, catalog, "it has another of that name")
    return table


def _gone(target: TableTarget, catalog: str, why: str) -> TableNotFound:
    return TableNotFound(
        f"table {target.table.identifier} ({target.table.table_uuid}) is not in the session's catalog {catalog!r}: {why}; "
        "it was dropped or renamed, or the session belongs to another lake: take one from lake.spark()"
    )


def _spark_schema(java: Any, table: Any, name: str) -> Any:
    """The table's schema as Spark sees it, a StructType.

    Raises:
        FileRefused: wrong_type, for a type of Iceberg's that Spark lacks.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        text = static(java, "spark.SparkSchemaUtil.convert")(table.schema()).json()
    except (Py4JJavaError, PySparkException) as error:
        raise FileRefused(
            "wrong_type",
            f"{name} has a column of a type that Spark cannot write ({java_class(error)}); "
            "give the rows as an Arrow table: df.toArrow()",
        ) from error
    return StructType.fromJson(msgspec.json.decode(text))


def _partition_sources(schema: Document, spec: Document) -> list[str]:
    """The top-level columns that partitions are made from."""
    sources = {field["source-id"] for field in spec["fields"] if field["transform"] != "void"}
    return [field["name"] for field in schema["fields"] if field["id"] in sources]


def _try(java: Any, rows: DataFrame, table: Any, prefix: str, target: TableTarget, catalog: str) -> None:
    """Write the rows of `check_storage` as those of a table of their own, through the same catalog's access to the storage."""
    properties = new(java, "java.util.HashMap")
    properties.put("write.data.path", prefix.rstrip("/"))
    properties.put("write.object-storage.enabled", "false")
    schema = static(java, "SchemaParser.fromJson")(_TRIAL_SCHEMA)
    spec = static(java, "PartitionSpec.unpartitioned")()
    metadata = static(java, "TableMetadata.newTableMetadata")(schema, spec, table.location(), properties)
    trial = new(java, "org.apache.iceberg.BaseTable", table.operations().temp(metadata), table.name())
    _write_staged(java, rows, trial, target, catalog, {})


_TRIAL_SCHEMA = '{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"id","required":false,"type":"long"}]}'


# The write ----------------------------------------------------------------------------------------------------------------


def _properties(target: TableTarget, schema: Document, spec: Document) -> dict[str, str]:
    """The table's properties for this write alone."""
    given = target.metadata.properties
    properties = {
        "write.data.path": target.intent.prefix.rstrip("/"),
        DISTRIBUTION_MODE.name: DISTRIBUTION_MODE.of(given),
        # Iceberg would count and bound the first hundred columns alone.
        METRICS_COLUMNS.name: str(METRICS_COLUMNS.of(given)),
    }
    for column in types.walk(schema):
        if column.type == "uuid":  # see `arrow_write.columns_with_statistics`
            for kind in ("stats-enabled", "dict-encoding-enabled"):
                properties[f"write.parquet.{kind}.column.{column.full_name}"] = "false"
    hashed = bool(spec["fields"]) and (target.engine.name != "local" or not _has_harmless_folders(schema, spec))
    properties["write.object-storage.enabled"] = "true" if hashed else "false"
    # Without the partition's values, which would stand in the paths with all their characters.
    properties["write.object-storage.partitioned-paths"] = "false"
    return properties


def _has_harmless_folders(schema: Document, spec: Document) -> bool:
    """Whether the plain layout, with a folder for each partition such as 'day=2020-01-31', gives only plain names.

    A name or a text value may hold any character, and be longer than a file's name can be. Where they may, files go into
    hashed folders that say nothing: safe, but in a local folder slower, since Hadoop starts a program for each new folder.
    """
    types_ = {field["id"]: field["type"] for field in schema["fields"]}
    for field in spec["fields"]:
        numbered = field["transform"] in ("year", "month", "day") or field["transform"].startswith("bucket[")
        of_numbers = field["transform"] == "identity" and types_.get(field["source-id"]) in (
            "int",
            "long",
            "date",
            "boolean",
        )
        if not (numbered or of_numbers) or not _PLAIN_NAME.fullmatch(field["name"]):
            return False
    return True


def _with_properties(java: Any, table: Any, properties: dict[str, str]) -> Any:
    """The table with other properties, in memory only."""
    current = table.operations().current()
    merged = new(java, "java.util.HashMap", current.properties())
    for key in ("write.location-provider.impl", "write.object-storage.path", "write.folder-storage.path"):
        merged.remove(key)
    for key, value in properties.items():
        merged.put(key, value)
    return new(
        java, "org.apache.iceberg.BaseTable", table.operations().temp(current.replaceProperties(merged)), table.name()
    )


def _write_staged(
    java: Any, rows: DataFrame, staged: Any, target: TableTarget, catalog: str, options: Mapping[str, str]
) -> list[Document]:
    """Write, and give the finished files as Iceberg's JSON of content files (Iceberg specification, appendix C)."""
    group = str(uuid.uuid4())
    cache = static(java, "spark.SparkTableCache.get")()
    coordinator = static(java, "spark.FileRewriteCoordinator.get")()
    codec = _CODECS.get(target.codec, target.codec)
    cache.add(group, staged)
    try:
        writer = rows.writeTo(f"{quoted(stage_catalog(catalog))}.{quoted(group)}")
        writer = writer.option("write-format", "parquet").option("compression-codec", codec)
        writer = writer.option("target-file-size-bytes", str(target.file_size))
        # Without fanout each task would sort its rows by partition first.
        fanout = FANOUT.of(target.metadata.properties)
        writer = writer.option("fanout-enabled", str(fanout).lower()).options(**options)
        spark = rows.sparkSession
        with _mapped_errors(str(target.table.identifier), master_of(spark)), writing(spark, target):
            writer.append()
        to_json, spec = static(java, "ContentFileParser.toJson"), staged.spec()
        # An array: the end of a Java iterator is an exception, which pyspark takes long to translate.
        return [msgspec.json.decode(to_json(file, spec)) for file in coordinator.fetchNewFiles(staged, group).toArray()]
    finally:
        coordinator.clearRewrite(staged, group)
        cache.remove(group)


@contextmanager
def _mapped_errors(table: str, master: str) -> Iterator[None]:
    """What a write can find wrong with the rows, or with executors that came later than the check of them, as Lakeward's errors.
    Others, of a person's own functions too, pass."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:
        raise InvalidInput(f"the DataFrame cannot be written to {table}: {first_line(str(error))}") from error
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if found := re.search(r"lakeward\.errors\.FileRefused: (.+)", text):  # of `values`
            raise FileRefused("wrong_type", f"a row does not fit {table}: {found[1]}") from error
        if BROKEN in text:
            raise FileRefused(
                "wrong_type", f"a row does not fit {table}: {first_line(text.partition(BROKEN)[2])}"
            ) from error
        if "NOT_NULL_ASSERT_VIOLATION" in text:
            # What follows is the field's path, a part on a line of its own.
            column = first_line(text.partition("non-nullable field:")[2])
            raise null_in_required(column) from error
        if why := no_keys(error, master):
            raise ExecutorsUnfit(why) from error
        raise


# The files ----------------------------------------------------------------------------------------------------------------


def _data_file(content: Document, schema: Document, spec: Document, target: TableTarget) -> DataFile:
    # Field by field in the spec's order; a void field has a null.
    ids = [field["field-id"] for field in spec["fields"]]
    partition = canonical_partition(schema, spec, dict(zip(ids, content["partition"], strict=True)))
    statistics = FileStatistics(
        column_sizes=_by_field(content, "column-sizes"),
        value_counts=_by_field(content, "value-counts"),
        null_counts=_by_field(content, "null-value-counts"),
        nan_counts=_by_field(content, "nan-value-counts"),
        # Hex text of single-value binary (Iceberg specification, appendix D).
        lower={key: bytes.fromhex(value) for key, value in _by_field(content, "lower-bounds").items()},
        upper={key: bytes.fromhex(value) for key, value in _by_field(content, "upper-bounds").items()},
    )
    return DataFile(
        path=_below(target.intent.prefix, content["file-path"]),
        size=content["file-size-in-bytes"],
        row_count=content["record-count"],
        schema_id=schema["schema-id"],
        spec_id=spec["spec-id"],
        sort_order_id=content.get("sort-order-id") or 0,
        partition=partition,
        partition_path=partition_path(schema, spec, partition),
        statistics=statistics,
        split_offsets=content.get("split-offsets") or [],
        is_compressed=target.is_compressed,
    )


def _below(prefix: str, path: str) -> str:
    """The path as the prefix spells it: Hadoop writes file:/x for file:///x, and locations are compared as strings."""
    if prefix.startswith("file:///") and path.startswith("file:/") and not path.startswith("file://"):
        path = "file://" + path.removeprefix("file:")
    if not path.startswith(prefix):
        raise StorageError(f"Spark wrote {path}, which is not below {prefix}; nothing was registered")
    return path


def _by_field(content: Document, name: str) -> dict[int, Any]:
    """One map of the metrics, without reserved fields: a staged file of format version 3 has null columns of row lineage."""
    pairs = content.get(name) or {"keys": [], "values": []}
    both = zip(pairs["keys"], pairs["values"], strict=True)
    return {key: value for key, value in both if key <= types.LAST_FIELD_ID}


def _completed(files: Sequence[DataFile], engine: StorageEngine, loaded: Loaded) -> list[DataFile]:
    """The files with what has to be asked of the storage: their footers, and the checksums that the store keeps itself.

    Raises:
        FileRefused: wrong_partition. Java's hours past 32 bits come out as others, so that the columns themselves tell.
    """
    fields = [field for field in loaded.spec["fields"] if field["transform"] != "void"]
    terms = [term for term in splitting.terms(fields, loaded.schema) if may_overflow(term.transform, term.source.type)]

    def complete(file: DataFile) -> DataFile:
        footer = read_footer(engine, file.path)
        if terms:
            splitting.check_bounds_held(from_footer(footer, loaded.schema), terms)
        return msgspec.structs.replace(file, footer=encode_footer(footer), checksum=engine.checksum(file.path))

    if len(files) < 2:
        return [complete(file) for file in files]
    with ThreadPoolExecutor(min(_FOOTER_THREADS, len(files)), "lakeward-footer") as threads:
        return list(threads.map(complete, files))

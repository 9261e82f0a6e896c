"""Iceberg's own Java library as the judge of what Lakeward writes, in the JVM of the tests' Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakeward.iceberg import metadata


class Judge:
    """Parses metadata as Iceberg's readers do. Py4j has no types: what it gives is Any."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        self.jvm = jvm
        self.iceberg: Any = jvm.org.apache.iceberg

    def refusal(self, document: bytes) -> str | None:
        """Why Iceberg's TableMetadataParser refuses a metadata file (it reads schemas, specs, orders, snapshots and refs with
        the parsers of each); none where it reads it."""
        try:
            read = self.iceberg.TableMetadataParser.fromJson(metadata.plain(document).decode())
            self.iceberg.Partitioning.partitionType(self._table(read))
        except Py4JJavaError as error:
            return str(error.java_exception.toString())
        return None

    def unread(self, location: str) -> str | None:
        """Why a table whose metadata file is at `location` cannot be planned: its manifest lists and manifests are read too."""
        try:
            io = self.iceberg.hadoop.HadoopFileIO(self.jvm.org.apache.hadoop.conf.Configuration())
            operations = self.iceberg.StaticTableOperations(location, io)
            table = self.iceberg.BaseTable(operations, "judged")
            for snapshot in list(table.snapshots()):
                tasks = table.newScan().useSnapshot(snapshot.snapshotId()).planFiles().iterator()
                while tasks.hasNext():
                    tasks.next()
        except Py4JJavaError as error:
            return str(error.java_exception.toString())
        return None

    def refused_below(self, folder: Path) -> dict[str, str]:
        """The metadata files below a folder that are refused, and why."""
        files = sorted(path for path in folder.rglob("*.metadata.json") if path.is_file())
        found = {path.name: self.refusal(path.read_bytes()) for path in files}
        return {name: why for name, why in found.items() if why is not None}

    def _table(self, read: Any) -> Any:
        operations = self.iceberg.StaticTableOperations(read, None)
        return self.iceberg.BaseTable(operations, "judged")

    def table_properties(self) -> dict[str, Any]:
        """The names of the properties that Iceberg's TableProperties has, by the names of their constants."""
        found = self.constants("org.apache.iceberg.TableProperties")
        return {name: value for name, value in found.items() if isinstance(value, str)}

    def constants(self, class_name: str) -> dict[str, Any]:
        """The public constants of a class, by name."""
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()  # Spark's, which has its jars
        fields = self.jvm.java.lang.Class.forName(class_name, True, loader).getFields()
        return {field.getName(): field.get(None) for field in fields}

"""How the tests start Spark."""

from __future__ import annotations

from pathlib import Path

from lakeward.spark import toolchain


def spark_defaults(warehouse: Path | None = None, s3: bool = False) -> dict[str, str]:
    """The settings of a session on this machine alone: small, quick to start, with Iceberg (and S3) on its class path.

    Set `toolchain.spark_environment()` in os.environ before the session starts: a JVM reads JAVA_HOME once.
    """
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The tests' statements are short: compiling them well costs more than it brings.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    if warehouse is not None:
        conf["spark.sql.warehouse.dir"] = str(warehouse)
    return conf | toolchain.spark_jars_conf(s3)

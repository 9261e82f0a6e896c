"""The settings of a Spark session on Lakeward's catalog, and a session that has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lakeward.errors import JavaMissing, SparkMissing
from lakeward.spark import given as spark_given
from lakeward.spark import toolchain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PENDING_HEADER = "X-Lakeward-Pending"  # 'skip': load the table without committing its pending files first
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

_SQL = "spark.sql."
_HADOOP = "spark.hadoop."

# What the catalog for writers has beside the one for readers.
_WRITING = {
    f"header.{PENDING_HEADER}": "skip",
    # Hadoop's local file system writes a checksum file beside each file, which no one would ever delete. Its instances are
    # cached by scheme alone, so the cache must go for this one to be taken. Iceberg's scans cannot work with it: they ask
    # for its scheme, which it does not say.
    "hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "hadoop.fs.file.impl.disable.cache": "true",
}


def ingest_catalog(catalog: str) -> str:
    """The name of the catalog that loads tables without committing what is pending: for writers, which do not read."""
    return f"{catalog}_ingest"


def stage_catalog(catalog: str) -> str:
    """The name of the catalog of tables that are only staged: Iceberg's own, for writes whose commit comes later."""
    return f"{catalog}_stage"


def spark_conf(
    url: str, token: str | None, catalog: str = "lakeward", s3: Mapping[str, Any] | None = None, *, jars: bool = True
) -> dict[str, str]:
    """The options that put a Lakeward server's catalog into a Spark session: SQL names its tables `catalog.namespace.table`.

    The catalogs' options and the default catalog may be set on a running session, as long as it has not used the catalog;
    the extensions and the jars only before it starts.

    Args:
        url: of the server, 'http://127.0.0.1:8181'.
        token: that the server asks for; None where it asks for none. Spark shows it to nobody (it redacts by name).
        s3: the settings of the S3 storage engine, where tables lie in object storage; None for local folders alone.
        jars: whether to name Iceberg's jars too; false for a cluster that has them.
    """
    stage = f"spark.sql.catalog.{stage_catalog(catalog)}"
    conf = {
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.defaultCatalog": catalog,
        **_rest_catalog(catalog, url, token, s3),
        **_rest_catalog(ingest_catalog(catalog), url, token, s3),
        **{f"spark.sql.catalog.{ingest_catalog(catalog)}.{key}": value for key, value in _WRITING.items()},
        stage: "org.apache.iceberg.spark.SparkRewriteTableCatalog",
    }
    if s3 is not None:
        conf |= {_HADOOP + key: value for key, value in _s3_options(s3)[1].items()}
        conf[f"{_HADOOP}fs.s3.impl"] = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    return conf | toolchain.spark_jars_conf(s3 is not None) if jars else conf


def _rest_catalog(name: str, url: str, token: str | None, s3: Mapping[str, Any] | None) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name}"
    options = {
        "type": "rest",
        "uri": url,
        # A cached table would show another writer's old snapshot.
        "cache-enabled": "false",
    }
    if token is not None:
        # The token is the server's own: there is nobody to get another one from, and Iceberg warns unless it is told so.
        options |= {
            "token": token,
            "rest.auth.type": "oauth2",
            "oauth2-server-uri": url,
            "token-refresh-enabled": "false",
        }
    if s3 is not None:
        options |= _s3_options(s3)[0]
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in options.items()},
    }


# Settings of the S3 storage engine, as Iceberg's S3FileIO has them, for tables' files and metadata; and as Hadoop's s3a has them,
# for what Spark reads by itself: files that are no part of an Iceberg snapshot.
_S3_NAMES = {
    "endpoint": ("s3.endpoint", "fs.s3a.endpoint"),
    "region": ("client.region", "fs.s3a.endpoint.region"),
    "access_key": ("s3.access-key-id", "fs.s3a.access.key"),
    "secret_key": ("s3.secret-access-key", "fs.s3a.secret.key"),
    "session_token": ("s3.session-token", "fs.s3a.session.token"),
    "path_style": ("s3.path-style-access", "fs.s3a.path.style.access"),
}


def _s3_options(s3: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """(S3FileIO's options, s3a's)."""
    own = s3.get("endpoint") is not None
    # As the engine has it: true for an endpoint of one's own unless told otherwise.
    path_style = "true" if s3.get("path_style", own) else None
    values = {**s3, "region": s3.get("region") or ("us-east-1" if own else None), "path_style": path_style}
    pairs = [(names, str(values[key])) for key, names in _S3_NAMES.items() if values.get(key) is not None]
    return {names[0]: value for names, value in pairs}, {names[1]: value for names, value in pairs}


def spark_session(
    conf: Mapping[str, str], master: str | None = None, chosen: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """A session with these options: a new one, or, where this process runs Spark already, one beside those there are.

    Sessions of one process share Spark itself, and so its master, jars and extensions: of `conf`, what can differ between
    them (spark.sql.*, spark.hadoop.*) is set on a session of its own, since a session that has used a catalog keeps it as it was.

    What the user or the cluster has set stays, whether by spark-submit, spark-defaults.conf or PYSPARK_SUBMIT_ARGS: the
    master, the driver's address, the interpreter of the executors. Jars and extensions are added to those that are set.

    Args:
        master: where Spark runs; None for what was submitted or configured, else this machine with all its cores.
        chosen: the caller's own settings, which are set whatever was set before.

    Raises:
        SparkMissing: pyspark is not installed, or the Spark that was submitted, or runs already, lacks Iceberg.
        JavaMissing: no Java 17 or 21, or Spark did not start with it.
    """
    try:
        from pyspark import SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing("pyspark is not installed; install it with: pip install 'lakeward[spark]'") from None
    # The active session is the thread's; the context is the process's.
    if SparkContext._active_spark_context is not None:
        return _session_beside(
            SparkSession.getActiveSession() or SparkSession.builder.getOrCreate(), {**conf, **chosen}
        )
    given = spark_given.given()
    if master is not None:
        given = {**given, spark_given.MASTER: master}
    is_local = given.get(spark_given.MASTER, "local").startswith("local")
    if spark_given.is_submitted():
        _check_submitted()
    else:
        _set_environment(is_local)
    options = {**(_ON_THIS_MACHINE if is_local else {}), **_DEFAULTS, **conf}
    builder = SparkSession.builder.appName(given.get("spark.app.name", "lakeward"))
    for key, value in {**spark_given.besides(options, given), **chosen}.items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise JavaMissing(
            f"Spark did not start with the Java of {os.environ.get('JAVA_HOME', 'PATH')}; what it printed says why, "
            "and `lakeward doctor` shows what was found"
        ) from error


_DEFAULTS = {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
_ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def _set_environment(is_local: bool) -> None:
    """A Java that was found is set even over JAVA_HOME, which was passed over if it could not run Spark.

    The interpreter is that of this process where all runs on this machine. Executors elsewhere have their own.
    """
    for name, value in toolchain.spark_environment().items():
        if name == "JAVA_HOME" or (name not in os.environ and (is_local or name == "PYSPARK_DRIVER_PYTHON")):
            os.environ[name] = value


def _check_submitted() -> None:
    """Jars cannot be added to a JVM that runs. Raises SparkMissing: it was submitted without Iceberg's."""
    from pyspark import SparkContext

    loader = SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    try:
        loader.loadClass(EXTENSIONS)
    except Exception:
        packages = ",".join(toolchain.spark_packages().coordinates)
        raise SparkMissing(
            f"this program was submitted to Spark without Iceberg's jars; give spark-submit --packages {packages}"
        ) from None


def _session_beside(running: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    if all(running.conf.get(key, None) == value for key, value in conf.items() if key.startswith((_SQL, _HADOOP))):
        return running
    wanted = EXTENSIONS in conf.get("spark.sql.extensions", "")
    if wanted and EXTENSIONS not in (running.conf.get("spark.sql.extensions", "") or ""):
        raise SparkMissing(
            "this process already runs a Spark without Iceberg's extensions; start it with the options of lake.spark_conf(), "
            "or stop it first"
        )
    session = running.newSession()
    for key, value in conf.items():
        if key.startswith(_SQL) and key != "spark.sql.extensions":
            session.conf.set(key, value)
        elif key.startswith(_HADOOP):  # a session hands its own settings to Hadoop by their plain names
            session.conf.set(key, value)
            session.conf.set(key.removeprefix(_HADOOP), value)
    return session

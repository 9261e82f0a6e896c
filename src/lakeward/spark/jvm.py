"""The session's JVM from Python: Iceberg's and Spark's own classes through py4j, where pyspark has no call for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeward.errors import SparkConnectUnsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


APPEND = "append from a classic session such as lake.spark(), or give the rows as an Arrow table: df.toArrow()"
COMPACT = "compact in a classic session such as lake.spark(), or by the command `lakeward compact`"


def gateway(spark: SparkSession, way_out: str) -> Any:
    """py4j's client of the session's JVM. Any: py4j has no types.

    Raises:
        SparkConnectUnsupported: it has none that this process can reach; `way_out` says what to do.
    """
    java = getattr(spark, "_jvm", None)
    if java is None:
        raise SparkConnectUnsupported(
            "this Spark session runs in another process (Spark Connect), where files cannot be staged without a commit; "
            + way_out
        )
    return java._gateway_client


def static(java: Any, name: str) -> Any:
    """A static method of Iceberg's, by its full name below org.apache.iceberg: one exchange with the JVM a call.

    Going by attributes costs an exchange for each package, and misses SparkTableCache.get: it is a static method and an
    instance method, py4j keeps one of the two by chance, and finds no static one in most JVMs.
    """
    from py4j.java_gateway import JavaMember

    class_name, _, method = name.rpartition(".")
    return JavaMember(method, None, f"z:org.apache.iceberg.{class_name}", java)


def new(java: Any, class_name: str, *arguments: Any) -> Any:
    from py4j.java_gateway import JavaClass

    return JavaClass(class_name, java)(*arguments)


@contextmanager
def active(java: Any, spark: SparkSession) -> Iterator[None]:
    """Make the session the JVM thread's active one: a catalog takes its options from there when it is first used, whichever
    session asks for it.
    """
    from py4j.java_gateway import JavaMember

    def sessions(method: str) -> Any:
        return JavaMember(method, None, "z:org.apache.spark.sql.classic.SparkSession", java)

    before = sessions("getActiveSession")()
    sessions("setActiveSession")(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions("setActiveSession")(before.get())
        else:
            sessions("clearActiveSession")()


def java_class(error: Exception) -> str:
    """The class of the exception that Java raised, else that of pyspark's; pyspark wraps some of them."""
    raised = getattr(error, "java_exception", None)
    return type(error).__name__ if raised is None else str(raised.getClass().getName())


def first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")

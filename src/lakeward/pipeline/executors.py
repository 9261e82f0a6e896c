"""Where a session's tasks run: in this process's own JVM, or on executors of a cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONE_TRY = re.compile(r"local(\[(\d+|\*)\])?")  # a task that fails there fails its job, and none is lost


def master_of(spark: SparkSession) -> str:
    return spark.conf.get("spark.master", "") or ""


def are_remote(spark: SparkSession) -> bool:
    """Whether tasks may run on other machines; so of a session of Spark Connect, unless it says otherwise."""
    master = master_of(spark)
    return not master.startswith("local") or master.startswith("local-cluster")


def may_be_lost(spark: SparkSession) -> bool:
    """Whether a job can succeed though a task of it was lost: with files that nobody will name, and that it may still write."""
    return _ONE_TRY.fullmatch(master_of(spark)) is None

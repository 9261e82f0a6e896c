"""Where a session's tasks run: in this process's own JVM, or on executors of a cluster; and whether those have what is needed.

Each check is a tiny job, once in an application, before the work that would fail without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.arrow.target import WriteTarget
from lakeward.errors import ExecutorsUnfit, StorageError, says

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_TASKS = 200
_passed: set[tuple[str, str]] = set()  # (application, what it was checked for)
# What S3's clients for Java say where they find no keys: Iceberg's, and Hadoop's.
_NO_KEYS = ("Unable to load credentials", "NoAuthWithAWSException", "No AWS Credentials")

_KNOWN = (
    ("Permission denied", "they may not write there"),
    ("Mkdirs failed", "they cannot make folders there"),
    ("No space left", "no space is left there"),
    ("UnknownHost", "they do not know the host"),
    ("Connection refused", "nothing answers them there"),
    ("AccessDenied", "their keys may not write there"),
    ("Cannot run program", "there is no such interpreter"),
    ("PYTHON_VERSION_MISMATCH", "their Python has another version"),
    ("No module named", "they lack a module"),
)

_ONE_TRY = re.compile(r"local(\[(\d+|\*)\])?")  # a task that fails there fails its job, and none is lost


def master_of(spark: SparkSession) -> str:
    return spark.conf.get("spark.master", "") or ""


def are_remote(spark: SparkSession) -> bool:
    """Whether tasks may run on other machines; so of a session of Spark Connect, unless it says otherwise."""
    master = master_of(spark)
    return not master.startswith("local") or master.startswith("local-cluster")


@contextmanager
def writing(spark: SparkSession, target: WriteTarget) -> Iterator[None]:
    """A block in which tasks write below the target's prefix, which some may do for longer: those that are told to stop, and
    those that are lost, though the job succeeds. Nobody will name the files of these."""
    try:
        yield
    except BaseException:
        target.outlived.set()
        raise
    if _ONE_TRY.fullmatch(master_of(spark)) is None:
        target.outlived.set()


def check_storage(spark: SparkSession, target: WriteTarget, write: Callable[[DataFrame, str], object]) -> None:
    """Have the executors write a few rows below the write's prefix, and see whether they are there.

    Args:
        write: writes a DataFrame below a prefix in the way that the work will.

    Raises:
        ExecutorsUnfit: they lack keys, or a folder of the warehouse that all machines share.
    """
    place = target.location.rsplit("/", 2)[0]
    passed = (_application(spark), place)
    if not are_remote(spark) or passed in _passed:
        return
    prefix, count = target.intent.prefix + "trial/", _tasks(spark)
    try:
        write(spark.range(0, count, 1, count), prefix)
    except Exception as error:
        target.outlived.set()
        if isinstance(error, ExecutorsUnfit):
            raise
        raise ExecutorsUnfit(
            no_keys(error, master_of(spark))
            or f"the executors of {master_of(spark)} cannot write below {place} ({_cause(error)}); nothing was written: check that "
            "they reach it, and may write there"
        ) from error
    try:
        found = sum(info.location.endswith(".parquet") for info in target.engine.list(prefix))
    except StorageError:
        found = 0
    if found < count:
        raise ExecutorsUnfit(
            f"the executors of {master_of(spark)} do not share the folder {place}: of {count} files that they wrote there, {found} "
            "are to be seen here. Mount one folder at that path on all machines, or use a warehouse on S3"
        )
    target.engine.delete_prefix(prefix)
    _passed.add(passed)


def no_keys(error: BaseException, master: str) -> str | None:
    """What to say of an error that is due to missing keys of S3; none of another."""
    if not says(error, *_NO_KEYS):
        return None
    return (
        f"the executors of {master or 'this session'} have no keys for S3: those in the environment of this process, such as "
        "AWS_ACCESS_KEY_ID, do not reach them. Set s3_access_key and s3_secret_key (in lakeward.toml or as LAKEWARD_S3_...), which "
        "lake.spark() hands on, or give the workers keys or a role of their own"
    )


def check_lakeward(spark: SparkSession, need: str) -> None:
    """See whether the executors' Python has Lakeward.

    Args:
        need: what it is needed for, for the message.

    Raises:
        ExecutorsUnfit
    """
    passed = (_application(spark), "lakeward")
    if not are_remote(spark) or passed in _passed:
        return
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    def missing(_: int) -> str | None:  # pickled by its code, so that it runs where Lakeward is not
        import sys

        try:
            import lakeward.arrow.partitioner  # noqa: F401
        except ImportError as error:
            return f"{sys.executable} has no module {error.name}"
        return None

    asked = F.udf(missing, "string", useArrow=False)
    count = _tasks(spark)
    try:
        row = spark.range(0, count, 1, count).select(asked("id").alias("why")).where("why IS NOT NULL").first()
        why = None if row is None else row["why"]
    except PySparkException as error:
        why = f"Python does not run there, or breaks off: {_cause(error)}"
    if why is not None:
        raise ExecutorsUnfit(
            f"{need} runs Lakeward's code on the executors of {master_of(spark)}, and they lack it ({why}). Install lakeward for their "
            "interpreter (spark.pyspark.python), or ship an environment that has it (spark.archives)"
        )
    _passed.add(passed)


def _tasks(spark: SparkSession) -> int:
    """Enough for each executor to get one."""
    known = getattr(spark, "_sc", None)
    return 8 if known is None else max(2, min(known.defaultParallelism, _MOST_TASKS))


def _application(spark: SparkSession) -> str:
    return spark.conf.get("spark.app.id", None) or str(id(spark))


def _cause(error: BaseException) -> str:
    """What is known to happen there, else the class of the innermost cause that Java names."""
    known = next((meaning for text, meaning in _KNOWN if says(error, text)), None)
    causes = re.findall(r"^Caused by: ([\w.$]+)", str(error), re.MULTILINE)
    return known or (causes[-1] if causes else type(error).__name__)

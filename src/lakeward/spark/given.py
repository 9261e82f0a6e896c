"""What the user or the cluster has set for Spark before a session of ours starts, which is never overridden."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

MASTER = "spark.master"
_ICEBERG = "iceberg-spark-runtime"


def is_submitted() -> bool:
    """Whether spark-submit has started this process: its JVM runs already, with what was given to it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def given() -> dict[str, str]:
    """The settings that are set already, by name; spark.master among them where it is."""
    if is_submitted():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf(_jvm=SparkContext._jvm).getAll())
    return {**_defaults_file(), **dict(_submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))}


def besides(options: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The options to set beside what is given: those that are not, and lists with both."""
    has_iceberg = any(_ICEBERG in given.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    result = {}
    for name, value in options.items():
        if has_iceberg and name in _JARS:
            continue
        if name not in given:
            result[name] = value
        elif name in _LISTS:
            result[name] = ",".join(dict.fromkeys([*given[name].split(","), *value.split(",")]))
    return result


_JARS = ("spark.jars", "spark.jars.packages", "spark.jars.excludes", "spark.jars.ivy")
_LISTS = ("spark.jars", "spark.jars.packages", "spark.jars.excludes", "spark.sql.extensions")


def _defaults_file() -> dict[str, str]:
    """spark-defaults.conf, where Spark would read it: a name, blanks or =, and the value on each line."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    folder = os.environ.get("SPARK_CONF_DIR") or home / "conf"
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.strip().replace("=", " ", 1).split(None, 1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


_SHORT = {"--master": MASTER, "--jars": "spark.jars", "--packages": "spark.jars.packages", "--name": "spark.app.name"}


def _submit_arguments(text: str) -> Iterator[tuple[str, str]]:
    words = iter(shlex.split(text))
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--conf" or name in _SHORT:
            value = value if equals else next(words, "")
            key, _, setting = value.partition("=")
            yield (key, setting) if name == "--conf" else (_SHORT[name], value)

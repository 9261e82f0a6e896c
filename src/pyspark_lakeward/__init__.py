"""Where Spark finds the format `lakeward` by itself: it looks into every package whose name begins with `pyspark_`."""

from lakeward.log.source import LogSource as DefaultSource

__all__ = ["DefaultSource"]

"""What moves rows: writes, scans, and the Spark jobs behind them. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.pipeline import catalog_server, compaction, compaction_plan, scan, spark_jvm, spark_session

__all__ = ["catalog_server", "compaction", "compaction_plan", "scan", "spark_jvm", "spark_session"]

__getattr__ = late.attributes(__name__)

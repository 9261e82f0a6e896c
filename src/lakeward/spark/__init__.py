"""What moves rows by Spark: sessions, writes, rewrites. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.spark import catalog_server, jvm, session

__all__ = ["catalog_server", "jvm", "session"]

__getattr__ = late.attributes(__name__)

"""The server: the Iceberg REST catalog (its reading half so far), over HTTP. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.catalog import embedded

__all__ = ["embedded"]

__getattr__ = late.attributes(__name__)

"""Tables: namespaces, schemas, files, statistics, and the registration that is the commit. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.tables import evolution, footers, namespaces, retirement, snapshots, tables

__all__ = ["evolution", "footers", "namespaces", "retirement", "snapshots", "tables"]

__getattr__ = late.attributes(__name__)

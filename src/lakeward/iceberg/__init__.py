"""Iceberg's metadata as plain documents: schemas, partitions, manifests, snapshots. No database, no storage.

Its modules are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.iceberg import expiry, merging, partitions, schemas

__all__ = ["expiry", "merging", "partitions", "schemas"]

__getattr__ = late.attributes(__name__)

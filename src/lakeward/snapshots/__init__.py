"""Iceberg snapshots of what is registered: committed, merged, expired, named, rolled back. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.snapshots import expiry, manifest_merging, refs, rollback, snapshot_commit, time_travel

__all__ = ["expiry", "manifest_merging", "refs", "rollback", "snapshot_commit", "time_travel"]

__getattr__ = late.attributes(__name__)

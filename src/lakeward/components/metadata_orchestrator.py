"""The metadata orchestrator: watches over group commit, by which every registration of this process goes.

Group commit itself (`db.group_commit`) works without it, since no write may depend on a component. What this adds: it says
whether it gets on, gives its figures, sets how large groups get, and keeps what a commit needs to know at hand, by
the events of the feed: the metadata of the tables that are written to is read when it changes, and not behind the writer lock while
other writers wait.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lakeward.astha.events import TABLE_METADATA, TABLES, Event
from lakeward.components.component import OwnComponent
from lakeward.db.group_commit import GroupCommitLimits, GroupCommitStatus
from lakeward.logs import log
from lakeward.registry import HasRegistry, Registry
from lakeward.tables import tables
from lakeward.tables.records.tables import TableMetadata, TableRow
from lakeward.validation import check_config

Record: TypeAlias = TableRow | TableMetadata


class MetadataOrchestratorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How large a group gets, and from when on group commit counts as broken.

    Raises InvalidSetting: a value that makes no sense.
    """

    max_group_commits: int = 64
    max_group_files: int = 256  # a single commit may have more
    max_failures: int = 5  # transactions in a row
    max_wait_seconds: float = 60.0  # of the commit that waits longest

    def __post_init__(self) -> None:
        check_config(self)


class MetadataOrchestrator(OwnComponent[Record]):
    """One for each registry handle whose writes it is to watch over."""

    name = "metadata_orchestrator"
    tables = (TABLES, TABLE_METADATA)

    def __init__(self, lake: Registry | HasRegistry, config: MetadataOrchestratorConfig | None = None) -> None:
        super().__init__(lake)
        self._config = config or MetadataOrchestratorConfig()
        self._group_commit = self._registry.group_commit
        self._group_commit.limits = GroupCommitLimits(
            commits=self._config.max_group_commits, files=self._config.max_group_files
        )

    def get_metrics(self) -> GroupCommitStatus:
        """What group commit has done since the registry was opened, and what waits in it now."""
        return self._group_commit.status()

    def on_health(self) -> bool:
        """Whether registrations get through: not many transactions have failed in a row, and none waits for long."""
        status, config = self._group_commit.status(), self._config
        works = status.failures_in_a_row < config.max_failures and status.longest_wait_seconds < config.max_wait_seconds
        if not works:
            log.warning(
                "group_commit_stands",
                failures=status.failures_in_a_row,
                waiting=status.waiting,
                longest_wait=round(status.longest_wait_seconds, 1),
            )
        return works

    def on_event(self, event: Event[Record]) -> None:
        """Keep the current version of a table that is written to at hand."""
        row = event.data
        if isinstance(row, TableRow):
            if event.operation == "DELETE" or row.dropped_at is not None:
                self._forget(row.table_id)
        elif event.operation != "INSERT":  # a version that changes was changed by hand
            self._registry.schemas.forget(row.table_id, row.metadata_version)
        elif row.table_id in self._group_commit.tables():
            self._registry.metadata_version(None, row.table_id, row.metadata_version)

    def on_refresh(self) -> None:
        """Look at each table that was written to: forget it if it is gone, else have its current version at hand."""
        for table_id in self._group_commit.tables():
            current = tables.live_version(self._registry, table_id)
            if current is None:
                self._forget(table_id)
            else:
                self._registry.metadata_version(None, table_id, current)

    def _forget(self, table_id: int) -> None:
        self._group_commit.forget(table_id)
        self._registry.schemas.forget(table_id)

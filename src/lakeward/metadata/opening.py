"""What a manager is given, and what it does in the background."""

from __future__ import annotations

import os
from contextlib import ExitStack

import sqlalchemy as sa

from lakeward.components.background import repeated
from lakeward.config import load_settings
from lakeward.errors import InvalidSetting
from lakeward.registry import HasRegistry, Registry, housekeeping, open_registry, registry_of, runs
from lakeward.store import dialect
from lakeward.store.database import METADATA_SCHEMA

Source = str | os.PathLike[str] | sa.Engine | Registry | HasRegistry

RECOVERY_SECONDS = 60.0  # between two looks for runs of which nothing was heard
CLEANUP_SECONDS = 3_600.0


def shared(source: Source, metadata_schema: str) -> Registry | None:
    """The registry that the caller has open; none for a URL, a path or an engine.

    Raises InvalidSetting: it has its operations tables in another schema.
    """
    if isinstance(source, (str, os.PathLike, sa.Engine)):
        return None
    registry = registry_of(source)
    database = registry.database
    if not database.is_sqlite and metadata_schema not in (METADATA_SCHEMA, database.metadata_schema):
        raise InvalidSetting(
            f"metadata_schema={metadata_schema!r}, but the lakehouse was opened with {database.metadata_schema!r}; give that "
            "one, or open the lakehouse with metadata_schema=..."
        )
    return registry


def opened(source: Source, metadata_schema: str) -> Registry:
    """A registry of one's own, made or brought up to date where needed. Of an engine, its URL is used.

    Raises:
        InvalidSetting, RegistryUnavailable, RegistryTooNew.
    """
    if isinstance(source, sa.Engine):
        if source.url.get_backend_name() == "sqlite" and source.url.database in (None, "", ":memory:"):
            raise InvalidSetting("an engine in memory cannot be shared; give the URL sqlite:// or a file's path")
        url = source.url.render_as_string(hide_password=False)
    else:
        url = os.fspath(source)  # type: ignore[arg-type]
    settings = load_settings(registry=url, metadata_schema=metadata_schema)
    return open_registry(settings, upgrade=True, touch_warehouse=False)


def start_background(
    stack: ExitStack,
    registry: Registry,
    *,
    enable_cleanup: bool,
    retention_days: float,
    schedule: housekeeping.Schedule,
    heartbeat_seconds: float,
) -> None:
    """Give up silent runs every minute; clean up every hour that the schedule allows. One process at a time does either."""

    def recover(registry: Registry) -> None:
        runs.recover(registry, heartbeat_seconds=heartbeat_seconds)

    def clean(registry: Registry) -> None:
        with registry.database.read() as connection:
            now = dialect.now(connection)
        if schedule.allows(now):
            housekeeping.cleanup(registry, retention_days, wait=0)

    stack.enter_context(repeated(registry, "metadata-recovery", RECOVERY_SECONDS, recover))
    if enable_cleanup:
        # Short programs never need it.
        stack.enter_context(repeated(registry, "metadata-cleanup", CLEANUP_SECONDS, clean, at_once=False))

"""What a manager is given."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from lakeward.config import load_settings
from lakeward.db.database import METADATA_SCHEMA
from lakeward.errors import InvalidSetting
from lakeward.registry import HasRegistry, Registry, open_registry, registry_of

_IN_MEMORY = (
    ":memory:",
    "sqlite://",
    "sqlite:///",
    "sqlite:///:memory:",
    "sqlite+pysqlite://",
    "sqlite+pysqlite:///:memory:",
)

Source = str | os.PathLike[str] | sa.Engine | Registry | HasRegistry


def shared(source: Source, metadata_schema: str) -> Registry | None:
    """The registry that the caller has open; None for a URL, a path or an engine.

    Raises InvalidSetting: it has its operations tables in another schema.
    """
    if isinstance(source, (str, os.PathLike, sa.Engine)):
        return None
    if not isinstance(source, Registry) and not isinstance(getattr(source, "registry", None), Registry):
        raise InvalidSetting(
            f"connection_pool is a {type(source).__name__}; give a Lake, postgresql://user@host/database, a SQLite file, or an "
            "SQLAlchemy engine that is not async"
        )
    registry = registry_of(source)
    database = registry.database
    if not database.is_sqlite and metadata_schema not in (METADATA_SCHEMA, database.metadata_schema):
        raise InvalidSetting(
            f"metadata_schema={metadata_schema!r}, but the lakehouse was opened with {database.metadata_schema!r}; give that "
            "one, or open the lakehouse with metadata_schema=..."
        )
    return registry


def _pool_of(source: Source) -> dict[str, Any]:
    """How many connections a given engine's pool may have: the registry's has as many."""
    pool = source.pool if isinstance(source, sa.Engine) else None
    if not isinstance(pool, sa.pool.QueuePool) or pool.size() < 1:
        return {}
    overflow: int = pool._max_overflow
    return {"pool_size": pool.size(), **({} if overflow < 0 else {"pool_overflow": overflow})}


def opened(source: Source, metadata_schema: str) -> Registry:
    """A registry of one's own, made or brought up to date where needed. Of an engine, its URL is used.

    Raises:
        InvalidSetting, RegistryUnavailable, RegistryTooNew.
    """
    is_engine = isinstance(source, sa.Engine)
    url = source.url.render_as_string(hide_password=False) if is_engine else os.fspath(source)  # type: ignore[arg-type, union-attr]
    if url in _IN_MEMORY:
        raise InvalidSetting(f"{url!r} is a database in memory, which threads cannot share; give a file's path")
    settings = replace(load_settings(registry=url, metadata_schema=metadata_schema), **_pool_of(source))
    return open_registry(settings, upgrade=True, touch_warehouse=False)

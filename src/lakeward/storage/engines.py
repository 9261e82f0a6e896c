"""Which storage engine is meant by a location or a name."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from lakeward import storage
from lakeward.errors import InvalidSetting
from lakeward.storage.engine import StorageEngine
from lakeward.storage.locations import LOCAL_SCHEME, S3_SCHEME

ENGINES = ("local", "s3")


def engine_for(location_or_name: str, engine_config: Mapping[str, Any] | None = None) -> StorageEngine:
    """The engine for a location ('file:///...', 's3://...') or a name ('local', 's3'); one object per configuration.

    Raises:
        InvalidSetting: no engine for it, or a setting that the engine does not know.
        ExtraMissing: S3 without boto3.
    """
    name = engine_name(location_or_name)
    config = {key: value for key, value in (engine_config or {}).items() if value is not None}
    return _engine(name, msgspec.json.encode(dict(sorted(config.items()))))


def engine_name(location_or_name: str) -> str:
    """'local' or 's3', by a location's scheme or by name.

    Raises:
        InvalidSetting: neither.
    """
    if location_or_name in ENGINES:
        return location_or_name
    if location_or_name.startswith(LOCAL_SCHEME):
        return "local"
    if location_or_name.startswith(S3_SCHEME):
        return "s3"
    raise InvalidSetting(f"no storage engine for {location_or_name!r}; known are {', '.join(ENGINES)} (file://, s3://)")


@functools.lru_cache(maxsize=64)
def _engine(name: str, config: bytes) -> StorageEngine:
    settings = msgspec.json.decode(config)
    return storage.local.LocalEngine(settings) if name == "local" else storage.s3.S3Engine(settings)


# What a forked child makes is its own: clients hold connections, over which two processes would get each other's answers.
os.register_at_fork(after_in_child=_engine.cache_clear)

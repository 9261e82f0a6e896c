"""Settings: one frozen object, merged from a file, the environment and arguments, the later winning where it was set."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lakeward.errors import InvalidSetting
from lakeward.secret_names import is_secret_name

FILE_NAME = "lakeward.toml"
PREFIX = "LAKEWARD_"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting and its default. Durations are in seconds, sizes in bytes."""

    registry: str = "lakehouse/registry.db"  # a file's path, or postgresql://user@host/database
    warehouse: str = "lakehouse/warehouse"  # a folder's path, or s3://bucket/prefix
    warehouse_name: str = "default"
    metadata_updates: str = "async"  # async: append returns when registered; sync: when the snapshot exists
    server_url: str | None = (
        None  # a running `lakeward serve`, or several (a,b); None: the lake serves its catalog itself
    )
    token: str | None = field(default=None, repr=False)
    catalog: str = "lakeward"  # the catalog's name in Spark
    lease_seconds: float = 60.0  # a write's intent; renewed every third of it
    sweep_after_seconds: float = 86_400.0  # a recovered intent's prefix is swept once more after this
    quarantine_seconds: float = 604_800.0  # retired data files, 7 days
    metadata_quarantine_seconds: float = 86_400.0  # superseded metadata files, 24 hours
    metadata_quarantine_objects: int = 300  # of a table that wait so long; older ones wait ten minutes
    keep_snapshots: int = 100  # in metadata.json
    keep_metadata_files: int = 10  # in metadata.json's log
    footer_limit: int = 262_144  # a larger footer is not stored, and its row says so
    feed_keep_seconds: float = 604_800.0  # how long the feed waits for a subscriber that is not seen, 7 days
    schema_cache_entries: int = 10_000  # metadata versions of tables that one handle keeps in memory
    schema_cache_bytes: int = 67_108_864  # and what they may take there, 64 MiB
    merge_in_process_bytes: int = 67_108_864  # compaction merges a group of files up to this without Spark, 64 MiB
    hold_timeout_seconds: float = 5.0  # how long a load waits where it may not commit, before it answers 503
    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_access_key: str | None = None
    s3_secret_key: str | None = field(default=None, repr=False)
    s3_path_style: bool | None = None
    metadata_schema: str = "lakeward"  # PostgreSQL: the schema that the operations tables stand in
    pool_size: int = 10  # connections to the registry's database that a handle keeps open
    pool_overflow: int = 20  # more, open while they are used; on PostgreSQL look-ups have half of these
    enable_cleanup: bool = True  # false: no process deletes old runs, errors and dead letters
    retention_days: float = 30.0  # how long these are kept after they have ended, by every process
    cleanup_schedule: str | None = None  # the hours, UTC, in which they are deleted: '02:00-05:00'; None: all
    topic_retention_every_seconds: float = (
        60.0  # how often `lakeward serve` looks for segments that topics keep no longer
    )
    astha: Mapping[str, Any] = field(default_factory=dict, hash=False)  # a table of the file: see AsthaConfig
    components: Mapping[str, Any] = field(default_factory=dict, hash=False)  # tables of the file, by component
    spark_master: str | None = None  # where Spark runs; None: as submitted or configured, else on this machine
    spark_conf: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)  # settings of Spark's, a table
    durable: bool = True  # false: SQLite may lose the last commits when the machine stops

    def __post_init__(self) -> None:
        if self.metadata_updates not in ("async", "sync"):
            raise InvalidSetting(f"metadata_updates={self.metadata_updates!r} is neither 'async' nor 'sync'")
        if not _IDENTIFIER.fullmatch(self.metadata_schema) or self.metadata_schema == "information_schema":
            raise InvalidSetting(
                f"metadata_schema={self.metadata_schema!r} is no name of a schema: use lower case letters, digits and '_', "
                "not beginning with a digit or 'pg_', up to 63, and not PostgreSQL's own"
            )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not (value > 0 if least else value >= 0) or value == math.inf:  # NaN is neither
                raise InvalidSetting(
                    f"{name}={value!r} must be {'greater than 0' if least else '0 or more'}, and finite"
                )

    def __repr__(self) -> str:
        """Without secrets: neither the token and the secret key, nor a password in the registry's URL."""
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.repr}
        shown["registry"] = without_password(self.registry)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def spark_options(self) -> dict[str, str]:
        """`spark_conf` as Spark takes it: TOML reads a dotted name without quotes as tables within tables."""
        return dict(_dotted(self.spark_conf))

    @property
    def engine_config(self) -> dict[str, Any]:
        """What the S3 storage engine takes, without what was not set. Holds secrets: never stored, never logged."""
        names = ("endpoint", "region", "access_key", "secret_key", "path_style")
        pairs = ((name, getattr(self, f"s3_{name}")) for name in names)
        return {name: value for name, value in pairs if value is not None}


def _dotted(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{before}{name}.")
        else:
            yield before + name, str(value).lower() if isinstance(value, bool) else str(value)


# Settings that must be greater than 0 (1), or at least 0 (0).
_LEAST = {
    "lease_seconds": 1,
    "pool_size": 1,
    "retention_days": 1,
    "topic_retention_every_seconds": 1,
    "pool_overflow": 0,
    "keep_snapshots": 1,
    "keep_metadata_files": 1,
    "sweep_after_seconds": 0,
    "quarantine_seconds": 0,
    "metadata_quarantine_seconds": 0,
    "metadata_quarantine_objects": 0,
    "feed_keep_seconds": 0,
    "footer_limit": 0,
    "schema_cache_entries": 0,
    "schema_cache_bytes": 0,
    "merge_in_process_bytes": 0,
    "hold_timeout_seconds": 0,
}
_IDENTIFIER = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_PASSWORD, _PARAMETER = re.compile(r"(://[^/@:]*:).*@"), re.compile(r"([?&]([^=&]*)=)[^&]*")


def without_password(url: str) -> str:
    """A database URL to show: '***' for what would be a password in it, even if the URL is not well formed."""
    shown = _PASSWORD.sub(r"\1***@", url)
    return _PARAMETER.sub(lambda found: f"{found[1]}***" if is_secret_name(found[2]) else found[0], shown)


_TYPES: dict[str, str] = {f.name: str(f.type) for f in fields(Settings)}

_HIDDEN = frozenset(f.name for f in fields(Settings) if not f.repr)


def load_settings(
    config: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
) -> Settings:
    """Defaults < file < environment < arguments. An argument that is None was not given.

    `config` names the file; without it, `lakeward.toml` of the working folder is read if it is there. Relative paths of a
    file are relative to the file. The environment's names are LAKEWARD_ and the setting in capitals.

    Raises:
        InvalidSetting: the file is missing or not TOML, or a name or a value is not one of the settings'.
    """
    values = {
        **_from_file(Path(config) if config is not None else None),
        **_from_environment(os.environ if environment is None else environment),
        **{name: value for name, value in arguments.items() if value is not None},
    }
    for name, value in values.items():
        if name not in _TYPES:
            raise InvalidSetting(f"{name!r} is no setting; the settings are {', '.join(_TYPES)}")
        values[name] = _converted(name, os.fspath(value) if isinstance(value, os.PathLike) else value)
    return replace(Settings(), **values)


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        path = Path(FILE_NAME)
        if not path.is_file():
            return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSetting(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            f'the settings file {path} is not TOML{_where(error)}; a text stands in quotes, as in registry = "lakeward.db"'
        ) from error
    for name in ("registry", "warehouse"):
        if isinstance(value := values.get(name), str) and "://" not in value:
            values[name] = str(path.parent.absolute() / value)
    return values


def _where(error: Exception) -> str:
    """The place at which a file ceases to be TOML."""
    if isinstance(error, UnicodeDecodeError):
        return f": byte {error.start} is no UTF-8"
    place = re.search(r"at line (\d+), column (\d+)", str(error))
    return f" from line {place[1]}, column {place[2]} on" if place else ": it ends too early"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {PREFIX + name.upper(): name for name in _TYPES}
    return {name: environment[variable] for variable, name in names.items() if variable in environment}


_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _converted(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    if kind.startswith("Mapping"):
        if not isinstance(value, Mapping):
            raise InvalidSetting(
                f"{name}={value!r} is not a table; write [{name}] in {FILE_NAME}, and its settings below"
            )
        return value
    try:
        if kind.startswith("bool"):
            return value if isinstance(value, bool) else _WORDS[str(value).lower()]
        if kind.startswith("int"):
            return _whole(value)
        if kind.startswith("float"):
            return float(value)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise InvalidSetting(f"{name}={value!r} is not of type {kind}") from None
    if not isinstance(value, str):
        shown = repr(value) if name not in _HIDDEN else f"a {type(value).__name__}"
        raise InvalidSetting(f"{name}={shown} is not text")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)

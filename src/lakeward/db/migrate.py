"""The registry's schema in a database: make it, bring it up to date, refuse what this code cannot work with."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

import msgspec
import sqlalchemy as sa

from lakeward.db import engines, schema, triggers
from lakeward.db.database import METADATA_SCHEMA, Database
from lakeward.db.retry import retried
from lakeward.db.rows import columns, record
from lakeward.errors import DatabaseError, InvalidSetting, RegistryOutdated, RegistryTooNew, RegistryUnavailable

LOCATION = Path(__file__).with_name("migrations")
_LOCK = 0x6C77_0001  # of the advisory lock that a migration takes on PostgreSQL ('lw')


class RegistryInfo(msgspec.Struct, frozen=True):
    """The one row of registry_info: who a registry is. Versions are of the schema."""

    registry_uuid: str
    schema_version: int
    minimum_version: int  # the oldest code, by its SCHEMA_VERSION, that may read and write it
    created_at: datetime


class RegistryStatus(msgspec.Struct, frozen=True):
    """What a database holds. Versions are of the schema; 0 and none where there is no registry."""

    exists: bool
    schema_version: int
    minimum_version: int  # the oldest code, by its SCHEMA_VERSION, that may read and write it
    code_version: int  # this code's SCHEMA_VERSION
    revision: str | None  # Alembic's

    @property
    def outdated(self) -> bool:
        return self.exists and self.schema_version < self.code_version


def status(database: Database) -> RegistryStatus:
    """What is there; makes nothing, not even SQLite's file.

    Raises:
        RegistryUnavailable: the database does not answer.
        DatabaseError: it is no database, or its registry_info has no row.
    """
    if database.is_sqlite and not _has_file(database):
        return _NOTHING
    with database.read() as connection:
        return _status(connection)


@retried
def create_or_upgrade(database: Database) -> RegistryStatus:
    """Make the registry's tables, or bring them to this code's version, in one transaction. What is there is kept.

    Does nothing where the registry is this code's or newer. Callers in several processes wait for each other.

    Raises:
        RegistryTooNew: the registry refuses code of this age.
        DatabaseError: the database holds a table of the same name that is no registry's.
        RegistryUnavailable: the database does not answer.
    """
    if database.is_sqlite and not status(database).exists:
        _take_over(database)
    with database.transaction(foreign_keys=False) as connection:
        if not database.is_sqlite:  # there the transaction has the whole file
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        before = _status(connection)
        _refuse_newer(database, before)
        if before.exists and not before.outdated:
            return before
        if not before.exists:
            _refuse_foreign_tables(database, connection)
        _refuse_hidden_tables(database, connection)
        triggers.remove(connection)  # a migration's own changes are not fed
        run_history(connection, LOCATION, "head", database.metadata_schema)
        triggers.install(connection)
        if database.is_sqlite:
            _check_foreign_keys(connection)
        return _status(connection)


def check(database: Database) -> RegistryStatus:
    """Refuse a registry that this code cannot work with. One that is merely newer is accepted.

    Raises:
        RegistryOutdated: there is no registry, or its schema is older than this code.
        RegistryTooNew: its minimum version is newer than this code.
        RegistryUnavailable: the database does not answer.
    """
    found = status(database)
    _refuse_newer(database, found)
    if not found.exists:
        raise RegistryOutdated(f"{database.shown_url} holds no registry yet; run `lakeward db upgrade` to make one")
    if found.outdated:
        raise RegistryOutdated(
            f"the registry {database.shown_url} has schema version {found.schema_version}, this code needs "
            f"{found.code_version}; run `lakeward db upgrade`"
        )
    _check_metadata_schema(database)
    return found


def open_checked(database: Database, upgrade: bool = False) -> RegistryStatus:
    """Make the registry where there is none, upgrade it where that is asked for, and otherwise check it.

    Raises:
        RegistryOutdated: it is older than this code, and `upgrade` is false.
        RegistryTooNew: it refuses code of this age.
        RegistryUnavailable: the database does not answer.
    """
    found = status(database)
    if not found.exists or (upgrade and found.outdated):
        return create_or_upgrade(database)
    return check(database)


def foreign_tables(database: Database) -> list[str]:
    """Of a SQLite file that holds no registry: the tables that it holds."""
    if not database.is_sqlite or not _has_file(database):
        return []
    with database.read() as connection:
        return sorted(sa.inspect(connection).get_table_names())


def run_history(
    connection: sa.Connection, location: Path, revision: str, metadata_schema: str = METADATA_SCHEMA
) -> None:
    """Run the revisions in `location` up to `revision`, in the connection's transaction."""
    # Here, since most programs only check: Alembic is a fifth of a second to import.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(location).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["metadata_schema"] = metadata_schema
    command.upgrade(config, revision)


def info(connection: sa.Connection) -> RegistryInfo:
    """The registry's own row.

    Raises:
        DatabaseError: there is none, so the registry was not made whole.
    """
    found = record(RegistryInfo, connection.execute(_INFO).one_or_none())
    if found is None:
        raise DatabaseError("registry_info has no row: the registry was not made whole; restore it from a backup")
    return found


_INFO = sa.select(*columns(schema.registry_info, RegistryInfo))
_NOTHING = RegistryStatus(False, 0, 0, schema.SCHEMA_VERSION, None)


def _status(connection: sa.Connection) -> RegistryStatus:
    inspector = sa.inspect(connection)
    if not inspector.has_table("registry_info"):
        return _NOTHING
    row = info(connection)
    revision = None
    if inspector.has_table("alembic_version"):
        revision = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return RegistryStatus(True, row.schema_version, row.minimum_version, schema.SCHEMA_VERSION, revision)


def _has_file(database: Database) -> bool:
    path = database.url.database
    return not path or path == ":memory:" or Path(path).exists()


def _refuse_newer(database: Database, found: RegistryStatus) -> None:
    if found.exists and found.minimum_version > found.code_version:
        raise RegistryTooNew(
            f"the registry {database.shown_url} needs code of schema version {found.minimum_version} or later, this is "
            f"{found.code_version}; install a newer lakeward"
        )


def _check_metadata_schema(database: Database) -> None:
    if database.is_sqlite:
        return
    with database.read() as connection:
        schemas = sa.inspect(connection).get_schema_names()
        has_tables = sa.inspect(connection).has_table("sync_runs", database.metadata_schema)
    if not has_tables:
        raise InvalidSetting(
            f"the operations tables of {database.shown_url} are not in the schema {database.metadata_schema!r} that "
            f"metadata_schema names; it has the schemas {', '.join(schemas)}: name theirs, or rename it in SQL (ALTER "
            "SCHEMA ... RENAME TO ...)"
        )


def _refuse_hidden_tables(database: Database, connection: sa.Connection) -> None:
    """A table of an operations table's name that stands earlier on PostgreSQL's search path would be taken for it."""
    if database.is_sqlite:
        return
    inspector = sa.inspect(connection)
    if inspector.default_schema_name == database.metadata_schema:
        return
    # With the schema's name: without it these are all tables of the search path.
    hiding = sorted(set(inspector.get_table_names(inspector.default_schema_name)) & schema.OPERATIONS)
    if hiding:
        raise DatabaseError(
            f"{database.shown_url} holds a table {hiding[0]!r} in the schema {inspector.default_schema_name!r}, which would hide "
            f"the registry's own; move it (ALTER TABLE {hiding[0]} SET SCHEMA ...) or use another database"
        )


def _refuse_foreign_tables(database: Database, connection: sa.Connection) -> None:
    taken = sorted(set(sa.inspect(connection).get_table_names()) & {*schema.metadata.tables, "alembic_version"})
    if taken:
        raise DatabaseError(
            f"{database.shown_url} holds a table {taken[0]!r} that belongs to no registry; give the registry a database "
            "of its own"
        )


def _take_over(database: Database) -> None:
    """Have a SQLite file of another program's, if it is one, written as a registry's is."""
    with database.read() as connection:
        _refuse_foreign_tables(database, connection)
    pooled = database.engine.raw_connection()
    try:
        engines.use_wal(pooled.driver_connection)
    except sqlite3.OperationalError as error:
        raise RegistryUnavailable(
            f"another program holds {database.shown_url}, so that no registry can be made in it; close it there, then try again"
        ) from error
    finally:
        pooled.close()


def _check_foreign_keys(connection: sa.Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise DatabaseError(
            f"after the upgrade row {broken[1]} of {broken[0]} would refer to a missing row of {broken[2]}; "
            "nothing was changed; repair that row, then upgrade again"
        )

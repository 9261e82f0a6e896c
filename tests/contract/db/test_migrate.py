"""The history of the schema makes what db/schema says, keeps what is there, and is run by one caller at a time."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Set
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from lakeward.db import migrate, schema, triggers
from lakeward.db.database import METADATA_SCHEMA, Database
from lakeward.errors import DatabaseError, InvalidSetting, RegistryOutdated, RegistryTooNew, RegistryUnavailable
from lakeward.ops.sql import schema_versions
from tests.contract.db import catalogs, processes, rows

RELEASED = Path(__file__).parents[2] / "data" / "registries"
HEAD = ScriptDirectory(str(migrate.LOCATION)).get_current_head()
REVISIONS = [each.revision for each in ScriptDirectory(str(migrate.LOCATION)).walk_revisions()]


@pytest.fixture
def empty(registry_url: str) -> Iterator[Database]:
    database = Database(registry_url)
    yield database
    database.close()


def test_the_history_makes_what_the_schema_says(empty: Database) -> None:
    migrate.create_or_upgrade(empty)
    with empty.read() as connection:
        made = catalogs.describe(connection)
    with empty.transaction() as connection:
        triggers.remove(connection)
        catalogs.drop_all(connection)
        catalogs.create_all(connection)
        said = catalogs.describe(connection)
    assert made == said
    assert len(said) >= len(schema.metadata.tables)


@pytest.mark.filterwarnings(
    "ignore:Skipped unsupported reflection", "ignore:autogenerate skipping", "ignore:Did not rec"
)
def test_alembic_finds_nothing_to_change(empty: Database) -> None:
    migrate.create_or_upgrade(empty)
    # An engine of its own: a Database leaves JSON to the types of our columns, and reflection has none.
    if empty.is_sqlite:
        _compare(empty.url, schema.metadata.tables.keys())
        return
    for path, tables in (
        ("public", schema.metadata.tables.keys() - schema.OPERATIONS),
        (METADATA_SCHEMA, schema.OPERATIONS),
    ):
        _compare(empty.url.update_query_dict({"options": f"-csearch_path={path}"}), tables)


def _compare(url: sa.URL, tables: Set[str]) -> None:
    def chosen(name: str | None, kind: str, _: object) -> bool:
        return name in tables if kind == "table" else "xid" not in str(name)

    said = sa.MetaData(naming_convention=schema.metadata.naming_convention)
    for table in schema.metadata.sorted_tables:
        if table.name in tables:
            table.to_metadata(said)
    with sa.create_engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_name": chosen})
        assert compare_metadata(context, said) == []


@pytest.mark.on("sqlite")  # PostgreSQL knows no other kind
def test_every_table_of_sqlite_is_strict(database: Database) -> None:
    with database.read() as connection:
        lax = connection.exec_driver_sql(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT strict"
        ).scalars()
        assert {name for name in lax if not name.startswith("sqlite_")} == {catalogs.ONLY_IN_HISTORY}


def test_making_a_registry_gives_it_a_uuid_its_versions_and_no_changes(empty: Database) -> None:
    made = migrate.create_or_upgrade(empty)
    assert made == migrate.RegistryStatus(
        True, schema.SCHEMA_VERSION, schema.MINIMUM_VERSION, schema.SCHEMA_VERSION, HEAD
    )
    with empty.read() as connection:
        first = migrate.info(connection)
        assert (first.schema_version, first.minimum_version) == (schema.SCHEMA_VERSION, schema.MINIMUM_VERSION)
        assert len(first.registry_uuid) == 36
        assert first.created_at.tzinfo is not None
        assert _count(connection, "registry_changes") == 0


def test_making_it_again_changes_nothing(empty: Database) -> None:
    migrate.create_or_upgrade(empty)
    with empty.transaction() as connection:
        rows.insert_all(connection)
        before = migrate.info(connection), _everything(connection)
    migrate.create_or_upgrade(empty)
    migrate.open_checked(empty, upgrade=True)
    with empty.read() as connection:
        assert (migrate.info(connection), _everything(connection)) == before


def test_a_database_without_a_registry_has_none_and_is_left_alone(empty: Database) -> None:
    assert migrate.status(empty) == migrate.RegistryStatus(False, 0, 0, schema.SCHEMA_VERSION, None)
    with pytest.raises(RegistryOutdated, match="lakeward db upgrade"):
        migrate.check(empty)
    if empty.is_sqlite:
        assert not Path(str(empty.url.database)).exists()
    assert migrate.open_checked(empty).exists


def test_processes_that_make_one_registry_at_once_make_one(empty: Database) -> None:
    url = empty.url.render_as_string(hide_password=False)
    with processes.CONTEXT.Pool(6) as pool:
        made = pool.map(_make, [url] * 12)
    assert len(set(made)) == 1


def _make(url: str) -> str:
    database = Database(url)
    migrate.open_checked(database, upgrade=True)
    with database.read() as connection:
        return migrate.info(connection).registry_uuid


def test_a_registry_whose_minimum_is_newer_is_refused_and_one_merely_newer_is_not(database: Database) -> None:
    _set_versions(database, schema.SCHEMA_VERSION + 1, schema.SCHEMA_VERSION)
    assert migrate.open_checked(database, upgrade=True).schema_version == schema.SCHEMA_VERSION + 1
    assert migrate.create_or_upgrade(database).revision == HEAD

    _set_versions(database, schema.SCHEMA_VERSION + 2, schema.SCHEMA_VERSION + 1)
    for refused in (migrate.check, migrate.create_or_upgrade, migrate.open_checked):
        with pytest.raises(RegistryTooNew, match=f"schema version {schema.SCHEMA_VERSION + 1} or later"):
            refused(database)


def test_an_older_registry_is_refused_with_the_way_out(database: Database) -> None:
    _set_versions(database, schema.SCHEMA_VERSION - 1, schema.SCHEMA_VERSION - 1)
    with pytest.raises(RegistryOutdated, match=f"version {schema.SCHEMA_VERSION - 1}.*`lakeward db upgrade`"):
        migrate.open_checked(database)


def test_somebody_elses_tables_are_not_taken_for_a_registry(empty: Database) -> None:
    with empty.transaction() as connection:
        connection.exec_driver_sql("CREATE TABLE tables (seats INTEGER)")
    with pytest.raises(DatabaseError, match="'tables' that belongs to no registry"):
        migrate.create_or_upgrade(empty)


@pytest.mark.on("postgresql")  # on SQLite one name is one table
def test_a_table_that_would_hide_one_of_the_operations_tables_is_refused(empty: Database) -> None:
    with empty.transaction() as connection:
        migrate.run_history(connection, migrate.LOCATION, "0003")
        connection.exec_driver_sql("CREATE TABLE sync_runs (seats INTEGER)")
    with pytest.raises(DatabaseError, match="'sync_runs' in the schema 'public', which would hide"):
        migrate.create_or_upgrade(empty)


def test_the_operations_tables_stand_in_a_schema_of_their_own(pg_url: str) -> None:
    database = Database(pg_url, metadata_schema="ops")
    migrate.create_or_upgrade(database)
    with database.transaction() as connection:
        rows.insert_all(connection)
    with sa.create_engine(database.url).connect() as connection:
        assert connection.exec_driver_sql("SELECT schema_name FROM ops.sync_runs").scalar_one() == "shop"
    with pytest.raises(InvalidSetting, match=r"not in the schema 'lakeward'.*'?ops"):
        migrate.open_checked(Database(pg_url))
    database.close()


def test_a_user_who_may_make_no_schema_uses_the_one_that_was_made_for_it(pg_url: str) -> None:
    role, url = f"app_{os.getpid()}", sa.make_url(pg_url)
    with psycopg.connect(pg_url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"CREATE SCHEMA ops AUTHORIZATION {role}; GRANT USAGE, CREATE ON SCHEMA public TO {role}")
        try:
            database = Database(url.set(username=role).render_as_string(hide_password=False), metadata_schema="ops")
            migrate.create_or_upgrade(database)
            with database.transaction() as connection:
                rows.insert_all(connection)
            database.close()
            assert admin.execute("SELECT count(*) FROM ops.sync_runs").fetchone() == (1,)
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_defaults_of_a_database_change_nothing(pg_url: str) -> None:
    name = sa.make_url(pg_url).database
    with psycopg.connect(pg_url.replace("+psycopg", ""), autocommit=True) as admin:
        for setting in (
            "DateStyle = 'SQL, DMY'",
            "TimeZone = 'Asia/Kathmandu'",
            "IntervalStyle = 'iso_8601'",
            "default_transaction_isolation = 'serializable'",
            "bytea_output = 'escape'",
        ):
            admin.execute(f"ALTER DATABASE {name} SET {setting}")
    database = Database(pg_url)
    migrate.create_or_upgrade(database)
    with database.transaction() as connection:
        rows.insert_all(connection)
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
        found = connection.execute(sa.select(schema.sync_runs.c.started_at)).scalar_one()
    assert found == rows.VALID["sync_runs"]["started_at"]
    one = database.lookups.one(schema_versions.BRIEF, {"schema_name": "shop", "table_name": "customers"})
    assert one is not None and one["registered_at"] == rows.VALID["schema_registry"]["registered_at"]
    database.close()


def test_a_file_that_is_no_database_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database, " * 100)
    with pytest.raises(DatabaseError, match="a text file"):
        migrate.open_checked(Database(f"sqlite:///{path}"))


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        migrate.open_checked(Database("postgresql://lakeward:secret@127.0.0.1:1/none"))


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_registry_of_every_revision_comes_to_head_with_its_rows(empty: Database, revision: str) -> None:
    with empty.transaction() as connection:
        migrate.run_history(connection, migrate.LOCATION, revision)
        for statement in (RELEASED / f"{revision}.sql").read_text().splitlines():
            if not statement.startswith("--"):
                is_sqlite = connection.dialect.name == "sqlite"
                connection.exec_driver_sql(statement if is_sqlite else re.sub("X'([0-9A-F]+)'", r"'\\x\1'", statement))
        before = _everything(connection)
    assert all(before.values()), "a table without a row"
    assert migrate.create_or_upgrade(empty).revision == HEAD
    with empty.read() as connection:
        after = _everything(connection)
        made = catalogs.describe(connection)
    for versioned in (before, after):
        versioned["registry_info"] = [{"uuid": row["registry_uuid"]} for row in versioned["registry_info"]]
    for table, found in before.items():
        assert len(after[table]) == len(found)
        for old, new in zip(found, after[table], strict=True):
            assert old.items() <= new.items(), table
    with empty.transaction() as connection:
        triggers.remove(connection)
        catalogs.drop_all(connection)
        catalogs.create_all(connection)
        assert made == catalogs.describe(connection)


LATER = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "later", "{head}", None, None

def upgrade():
    with op.batch_alter_table("tables", recreate="always" if op.get_bind().dialect.name == "sqlite" else "auto") as batch:
        batch.add_column(sa.Column("comment", sa.Text))
    op.execute("UPDATE tables SET comment = 'seen'")
    op.execute("UPDATE registry_info SET schema_version = {version} + 1")
"""


def test_a_later_revision_may_make_a_watched_table_anew(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.transaction() as connection:
        rows.insert_all(connection)
        before, fed = _everything(connection), _count(connection, "registry_changes")
    location = tmp_path / "migrations"
    shutil.copytree(migrate.LOCATION, location)
    (location / "versions" / "later.py").write_text(LATER.format(head=HEAD, version=schema.SCHEMA_VERSION))
    monkeypatch.setattr(migrate, "LOCATION", location)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)

    assert migrate.open_checked(database, upgrade=True).revision == "later"

    with database.transaction() as connection:
        after = _everything(connection)
        assert after.pop("tables")[0]["comment"] == "seen"
        before.pop("tables")
        assert {**after, "registry_info": None} == {**before, "registry_info": None}
        assert _count(connection, "registry_changes") == fed
        connection.exec_driver_sql("UPDATE tables SET row_count = 5")
        assert _count(connection, "registry_changes") == fed + 1
    with pytest.raises(DatabaseError), database.transaction() as connection:
        rows.insert(connection, "table_columns", table_id=999)


def test_an_upgrade_that_fails_changes_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = tmp_path / "migrations"
    shutil.copytree(migrate.LOCATION, location)
    broken = LATER.format(head=HEAD, version=schema.SCHEMA_VERSION) + "    op.execute('UPDATE nothing SET a = 1')\n"
    (location / "versions" / "later.py").write_text(broken)
    with database.read() as connection:
        before = catalogs.describe(connection), _everything(connection)
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "LOCATION", location)
        patch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
        with pytest.raises(DatabaseError):
            migrate.create_or_upgrade(database)
    with database.transaction() as connection:
        assert (catalogs.describe(connection), _everything(connection)) == before
        rows.insert_up_to(connection, "tables")
        assert _count(connection, "registry_changes") == 1, "the triggers are still there"


def _set_versions(database: Database, version: int, minimum: int) -> None:
    with database.transaction() as connection:
        connection.execute(schema.registry_info.update().values(schema_version=version, minimum_version=minimum))


def _count(connection: sa.Connection, table: str) -> int:
    return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def _everything(connection: sa.Connection) -> dict[str, list[dict[str, object]]]:
    """Every row of every table there is, as the driver gives it."""
    found = {}
    for name in catalogs.table_names(connection):
        result = connection.exec_driver_sql(f"SELECT * FROM {name} ORDER BY 1, 2").mappings()
        found[name] = [dict(row) for row in result]
    return found

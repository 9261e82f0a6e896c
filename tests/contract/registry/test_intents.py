from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakeward.db import dialect, schema
from lakeward.errors import IntentLost, StorageError, TableNotFound
from lakeward.maintenance import recovery
from lakeward.registry import Registry, intents
from lakeward.registry.sql import intents as intent_store
from lakeward.tables import registration, tables
from tests.support.registries import NAME, data_file, make_table, open_at, open_intents, rows_of
from tests.support.waiting import until


def test_an_intent_has_a_folder_of_its_own_below_its_table(registry: Registry) -> None:
    table = make_table(registry)
    made = [intents.open_intent(registry, table, kind) for kind in ("write", "write", "flush")]
    assert len({intent.prefix for intent in made}) == 3
    assert all(intent.prefix.startswith(table.location + "/") and intent.prefix.endswith("/") for intent in made)
    assert {intent.owner for intent in made} == {registry.owner}
    with registry.database.read() as connection:
        assert all(intents.is_open(connection, intent) for intent in made)


def test_an_intent_s_lease_goes_by_the_registry_s_clock(registry: Registry) -> None:
    table = make_table(registry)
    with registry.database.read() as connection:
        before = dialect.now(connection)
    intent = intents.open_intent(registry, table)
    with registry.database.read() as connection:
        after = dialect.now(connection)
    lease = timedelta(seconds=registry.settings.lease_seconds)
    assert before + lease <= intent.lease_until <= after + lease


def test_a_write_of_a_table_that_is_dropped_is_not_declared(registry: Registry) -> None:
    table = make_table(registry)
    tables.drop(registry, NAME)
    with pytest.raises(TableNotFound, match=r"sales\.orders \(it was dropped\)"):
        intents.open_intent(registry, table)
    assert open_intents(registry) == 0


def test_an_aborted_write_leaves_neither_a_file_nor_a_row(registry: Registry) -> None:
    table = make_table(registry)
    intent, other = intents.open_intent(registry, table), intents.open_intent(registry, table)
    engine = registry.engine(table.location)
    for prefix in (intent.prefix, other.prefix):
        engine.write(prefix + "00000.parquet", b"x")
        engine.write(prefix + "deeper/00001.parquet", b"x")
    intents.abort(registry, intent)
    assert list(engine.list(intent.prefix)) == []
    assert len(list(engine.list(other.prefix))) == 2
    assert [row["intent_id"] for row in rows_of(registry, "pending_writes")] == [other.intent_id]
    intents.abort(registry, intent)  # again, which does nothing
    with pytest.raises(IntentLost):
        registration.register(registry, table, intent, [data_file(intent.prefix)])


@pytest.mark.parametrize("sweep_again", [False, True])
def test_an_aborted_write_whose_table_was_dropped_leaves_a_row_only_for_those_who_may_still_write(
    registry: Registry, sweep_again: bool
) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    engine = registry.engine(table.location)
    engine.write(intent.prefix + "00000.parquet", b"x")
    tables.drop(registry, NAME)
    assert [row["recovered_at"] is not None for row in rows_of(registry, "pending_writes")] == [True]
    intents.abort(registry, intent, sweep_again=sweep_again)
    assert list(engine.list(intent.prefix)) == []
    assert [row["intent_id"] for row in rows_of(registry, "pending_writes")] == (
        [intent.intent_id] if sweep_again else []
    )


def test_the_files_of_a_registered_write_cannot_be_aborted_away(registry: Registry) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    file = data_file(intent.prefix)
    registry.engine(table.location).write(file.path, b"x")
    registration.register(registry, table, intent, [file])
    intents.abort(registry, intent)
    assert registry.engine(table.location).exists(file.path)


def test_an_abort_that_cannot_delete_leaves_the_intent_to_recovery(registry: Registry) -> None:
    table = make_table(registry)
    intent = intents.open_intent(registry, table)
    folder = Path(intent.prefix.removeprefix("file://"))
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder)  # a loop, which cannot be listed
    with pytest.raises(StorageError):
        intents.abort(registry, intent)
    folder.unlink()
    with registry.database.read() as connection:
        assert not intents.is_open(connection, intent)
        (due,) = intent_store.to_sweep(connection, registry.below, dialect.now(connection))
    assert due.intent_id == intent.intent_id


def test_a_registry_renews_its_own_open_intents_and_no_others(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path, lease_seconds=0.6) as ours, open_at(made_url, tmp_path) as theirs:
        table = make_table(ours)
        kept = intents.open_intent(ours, table)
        given_up = intents.open_intent(ours, table)
        with ours.database.transaction() as connection:
            intent_store.mark_recovered(connection, given_up.intent_id, dialect.now(connection), given_up.lease_until)
        foreign = intents.open_intent(theirs, table)
        deadline = time.monotonic() + 30
        until = kept.lease_until
        while until <= kept.lease_until + timedelta(seconds=0.6) and time.monotonic() < deadline:
            time.sleep(0.05)
            until = leases_until(ours)[kept.intent_id]
        found = leases_until(ours)
        assert found[kept.intent_id] > kept.lease_until + timedelta(seconds=0.6)
        assert found[given_up.intent_id] == given_up.lease_until
        assert found[foreign.intent_id] == foreign.lease_until


def leases_until(registry: Registry) -> dict[str, datetime]:
    return {row["intent_id"]: row["lease_until"] for row in rows_of(registry, "pending_writes")}


def test_a_closed_registry_renews_nothing(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path, lease_seconds=0.3) as registry:
        intent = intents.open_intent(registry, make_table(registry))
    with open_at(made_url, tmp_path) as other:
        before = leases_until(other)[intent.intent_id]
        time.sleep(0.5)
        assert leases_until(other)[intent.intent_id] == before
        with other.database.read() as connection:
            assert (
                intent_store.expired(connection, registry.below, dialect.now(connection), 10)[0].intent_id
                == intent.intent_id
            )


def test_a_second_intent_of_one_prefix_is_refused_by_the_database(registry: Registry) -> None:
    intent = intents.open_intent(registry, make_table(registry))
    row = sa.select(schema.pending_writes).where(schema.pending_writes.c.intent_id == intent.intent_id)
    with pytest.raises(sa.exc.IntegrityError), registry.database.engine.begin() as connection:
        values = dict(connection.execute(row).mappings().one())
        connection.execute(schema.pending_writes.insert(), {**values, "intent_id": "other"})


@pytest.mark.on("postgresql")  # on SQLite one writes at a time
def test_recovery_passes_over_an_intent_that_a_registration_has_just_taken(made_url: str, tmp_path: Path) -> None:
    """A registration takes the intents of a whole group, in the order in which they came; a recovery that waited for one while
    it has marked another would wait for ever."""
    with open_at(made_url, tmp_path, lease_seconds=0.001) as registry:
        table = make_table(registry)
        late = [intents.open_intent(registry, table) for _ in range(2)]
        for intent in late:
            registry.let_go(intent.intent_id)
        until(lambda: _expired(registry) == 2)
        with registry.database.transaction() as connection:
            assert intent_store.take(connection, late[0].intent_id)
            assert recovery.recover(registry).intents == 1
            assert intent_store.take(connection, late[1].intent_id) is False


def _expired(registry: Registry) -> int:
    with registry.database.read() as connection:
        return len(intent_store.expired(connection, registry.below, dialect.now(connection), 10))

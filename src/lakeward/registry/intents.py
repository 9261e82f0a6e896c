"""Intents: a write is declared before its first byte, has a folder of its own, and is committed by the one transaction that
takes its intent. Where the answer of that is lost, the intent says what became of it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.group_commit import Work
from lakeward.db.pipeline import Answer
from lakeward.db.retry import retried
from lakeward.errors import (
    CommitUnknown,
    IntentLost,
    LakewardError,
    RegistryBusy,
    RegistryFull,
    RegistryLost,
    RegistryUnavailable,
    TableNotFound,
    TopicNotFound,
)
from lakeward.log.records import Topic
from lakeward.log.sql import topics
from lakeward.logs import log
from lakeward.registry import leases
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents, orphan_sweeps
from lakeward.storage.locations import flush_prefix, write_prefix
from lakeward.tables.records.files import Intent
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import tables

T = TypeVar("T")

SETTLE_SECONDS = 30.0  # how long an unknown outcome is asked for
SETTLE_WAIT_SECONDS = 0.5
_NEVER = datetime.min.replace(tzinfo=UTC)


class Overtaken(Exception):
    """What a commit was to put others in the place of has changed meanwhile. Nothing was changed: plan again."""


_PREFIXES = {"write": write_prefix, "flush": flush_prefix}


def open_intent(registry: Registry, whose: Table | Topic, kind: str = "write", *, gives_way: bool = False) -> Intent:
    """Declare a write ('write': data files or segments, 'flush': metadata) of a table or a topic.

    While a write of data is under way, the table does not change so that its files could not be read; unless it `gives_way`,
    as upkeep does.

    Raises:
        TableNotFound: the table has been dropped.
        TopicNotFound: the topic has been deleted.
    """
    intent_id = str(uuid.uuid4())
    is_kept = kind == "write" and not gives_way
    declared = Intent(
        intent_id=intent_id,
        table_id=whose.table_id if isinstance(whose, Table) else None,
        kind=kind,
        prefix=_PREFIXES[kind](whose.location, intent_id),
        owner=registry.owner,
        lease_until=_NEVER,
        topic_id=whose.topic_id if isinstance(whose, Topic) else None,
        metadata_version=whose.version if isinstance(whose, Table) and is_kept else None,
    )
    lasts = timedelta(seconds=registry.settings.lease_seconds)

    def work(connection: sa.Connection, clock: dialect.Clock) -> datetime:
        now = clock()
        until = intents.insert(connection, msgspec.structs.replace(declared, lease_until=now + lasts), now)
        if until is None:
            _check_lives(connection, whose)
            raise IntentLost(f"the write {intent_id} of {_name(whose)} could not be declared; try again")
        return until

    database = registry.database
    database.check_free()
    statement = intents.insertion(database.engine.dialect.name, isinstance(whose, Topic))
    at_once = database.lookups.write(statement, intents.parameters_of(declared, round(lasts.total_seconds() * 1000)))
    until = registry.group_commit.commit(work) if at_once is None else at_once["lease_until"]
    registry.keep(intent_id)
    return msgspec.structs.replace(declared, lease_until=until)


def _check_lives(connection: sa.Connection, whose: Table | Topic) -> None:
    if isinstance(whose, Table):
        if tables.live_version(connection, whose.table_id) is None:
            raise TableNotFound(f"Table does not exist: {whose.identifier} (it was dropped)")
        return
    found = topics.by_id(connection, whose.topic_id)
    if found is None or found.deleted_at is not None:
        raise TopicNotFound(f"Topic does not exist: {whose.name} (it was deleted)")


@contextmanager
def declared(
    registry: Registry,
    whose: Table | Topic,
    kind: str = "write",
    *,
    gives_way: bool = False,
    outlived: threading.Event | None = None,
) -> Iterator[Intent]:
    """An intent for a block that commits it. If anything goes wrong in the block, the write is given up, which after an interrupt
    finds out whether it was committed. Where `commit_intent` could not find that out either, it is left as it is.

    Args:
        outlived: set where others, such as Spark's tasks, may still write below its prefix when the block is over.

    Raises as `open_intent`.
    """
    intent = open_intent(registry, whose, kind, gives_way=gives_way)
    try:
        yield intent
    except BaseException as error:
        if kind != "write" or not isinstance(error, CommitUnknown):
            give_up(registry, intent, sweep_again=outlived is not None and outlived.is_set())
        raise


def _name(whose: Table | Topic) -> str:
    return str(whose.identifier) if isinstance(whose, Table) else whose.name


# The commit ---------------------------------------------------------------------------------------------------------------
def commit_intent(
    registry: Registry,
    whose: Table | Topic,
    intent: Intent,
    work: Work[T],
    answer: Callable[[sa.Connection], T | None],
    *,
    weight: int = 1,
    may_wait: bool = False,
    is_large: bool = False,
) -> T:
    """Commit a write: `work` takes its intent, with `take`, and makes what it wrote part of its table or topic, in one
    transaction. That may be one with others' work; of a table, its row is locked first.

    Where the registry does not answer, the intent settles what happened: one that is open was not committed, and the work is
    done again; one that is gone was, or was given up.

    Args:
        work: it may be run again, by another thread.
        answer: what a commit that went through was answered; None if the intent was given up instead.
        weight: how many files it brings.
        may_wait: for rows that writers of other tables may hold, where the database locks rows: others do not wait with it.
        is_large: others would wait long for it.

    Raises:
        CommitUnknown: it is not known, and nothing of the write was taken back.
        RegistryUnavailable: it did not answer in all that time; nothing was committed.
        IntentLost: the intent was given up.
        What `work` raises.
    """
    if is_large or (may_wait and not registry.database.is_sqlite):
        commit = partial(registry.group_commit.commit_alone, work, table_id=intent.table_id)
    else:
        commit = partial(registry.group_commit.commit, work, table_id=intent.table_id, weight=weight)
    deadline: float | None = None
    while True:
        try:
            return commit()
        except RegistryUnavailable as error:
            failure = error
        deadline = deadline or time.monotonic() + SETTLE_SECONDS
        is_open, found = _outcome(registry, whose, intent, answer, failure, deadline)
        if found is not None:
            return found
        if not is_open:
            raise IntentLost(
                f"the write {intent.intent_id} of {_name(whose)} is not known any more; nothing was registered: write again"
            ) from failure


def _outcome(
    registry: Registry,
    whose: Table | Topic,
    intent: Intent,
    answer: Callable[[sa.Connection], T | None],
    failure: RegistryUnavailable,
    deadline: float,
) -> tuple[bool, T | None]:
    """What became of a commit that failed so: (whether the intent is open, its answer), as soon as the registry says it.

    Raises `failure`, or CommitUnknown.
    """
    # Others had the registry for as long as is waited for them, or its disk is full: to ask again is no use.
    is_hopeless = isinstance(failure, (RegistryBusy, RegistryFull))
    while time.monotonic() < deadline and not is_hopeless:
        time.sleep(SETTLE_WAIT_SECONDS)
        try:
            return _look(registry, intent, answer)
        except RegistryUnavailable:
            continue
        except RegistryLost:
            break
    if not isinstance(failure, CommitUnknown):
        raise failure
    registry.let_go(intent.intent_id)
    raise CommitUnknown(
        f"{failure} Whether the write {intent.intent_id} of {_name(whose)} was registered is not known: its files are kept. "
        "Send it again with its key once the registry answers, or look what is there"
    ) from failure


@retried
def _look(registry: Registry, intent: Intent, answer: Callable[[sa.Connection], T | None]) -> tuple[bool, T | None]:
    """A commit that is still under way in the database has locked the intent, and is waited for."""
    with registry.database.transaction() as connection:
        is_open = intents.load(connection, intent.intent_id, lock=True) is not None
        return is_open, None if is_open else answer(connection)


def take(
    connection: sa.Connection,
    registry: Registry,
    whose: Table | Topic,
    intent: Intent,
    clock: dialect.Clock,
    *,
    lease: leases.Lease | None = None,
    outlived: bool = False,
) -> None:
    """Take an intent in the transaction that commits its write; what comes before it in the order of locks is locked.

    Args:
        lease: it must be current still.
        outlived: others, such as lost tasks of Spark's, may have left more below the intent's prefix, or may still write there:
            what is not registered is swept once they have had a lease's time.

    Raises:
        IntentLost: recovery has taken it.
        TableNotFound, TopicNotFound: a drop has.
        LeaseLost.
    """
    finish_take(
        connection, registry, whose, intent, clock, send_take(connection, intent), lease=lease, outlived=outlived
    )


def send_take(connection: sa.Connection, intent: Intent) -> Answer:
    """The first half of `take`: on PostgreSQL it goes to the server with what else the write has to know."""
    return intents.send_take(connection, intent.intent_id)


def finish_take(
    connection: sa.Connection,
    registry: Registry,
    whose: Table | Topic,
    intent: Intent,
    clock: dialect.Clock,
    taken: Answer,
    *,
    lease: leases.Lease | None = None,
    outlived: bool = False,
) -> None:
    """The other half. Raises as `take`."""
    if not taken.count():
        _check_lives(connection, whose)
        raise IntentLost(
            f"the write {intent.intent_id} of {_name(whose)} took longer than its lease, and recovery has taken it; nothing was "
            "registered: write again, or raise lease_seconds"
        )
    if outlived:
        now = clock()
        first = now + timedelta(seconds=registry.settings.lease_seconds)
        orphan_sweeps.insert(connection, orphan_sweeps.OrphanSweep(intent.prefix, now, first))
    if lease is not None:
        leases.check(connection, lease)


# The end without one ------------------------------------------------------------------------------------------------------
def abort(registry: Registry, intent: Intent, *, sweep_again: bool = False) -> None:
    """Give a write up: first its claim, then its objects, then its row. A death in between leaves the rest to recovery.

    With `sweep_again` others, such as Spark's tasks, may still write below its prefix: the row stays for one more sweep.

    The claim goes first because a registration whose answer was lost may still be under way in the database: it is waited
    for, and if it went through, the intent is gone and its files are not ours to delete. An intent that recovery or a drop
    has taken can never be registered: its files go too.
    """
    registry.let_go(intent.intent_id)
    marked = _mark(registry, intent)
    if marked is not None:
        registry.engine(intent.prefix).delete_prefix(intent.prefix)
        _finish(registry, intent, marked, sweep_again)


@retried
def _mark(registry: Registry, intent: Intent) -> datetime | None:
    """Mark it as given up, unless it is; when that was certain. None for one that is registered."""
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        is_ours = intents.mark_recovered(connection, intent.intent_id, now, sweep_after=now)
        return now if is_ours or intents.is_known(connection, intent.intent_id) else None


@retried
def _finish(registry: Registry, intent: Intent, marked: datetime, sweep_again: bool) -> None:
    with registry.database.transaction() as connection:
        if sweep_again:
            wait = timedelta(seconds=registry.settings.sweep_after_seconds)
            intents.sweep_at(connection, intent.intent_id, marked + wait)
        else:
            intents.forget(connection, intent.intent_id, recovered_before=marked)


def give_up(registry: Registry, intent: Intent, *, sweep_again: bool = False) -> None:
    """Abort a write; what cannot be deleted now is left to recovery, and what happened before stays the outcome."""
    try:
        abort(registry, intent, sweep_again=sweep_again)
    except LakewardError as error:
        log.warning("abort_left_to_recovery", intent=intent.intent_id, error=str(error), code=error.code)


def is_open(connection: sa.Connection, intent: Intent) -> bool:
    return intents.load(connection, intent.intent_id) is not None

"""Intents: a write is declared before its first byte, and has a folder of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import LakewardError, TableNotFound, TopicNotFound
from lakeward.log.records import Topic
from lakeward.log.sql import topics
from lakeward.logs import log
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents, orphan_sweeps
from lakeward.storage.locations import flush_prefix, write_prefix
from lakeward.tables.records.files import Intent
from lakeward.tables.records.tables import Table
from lakeward.tables.sql import tables

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

    def work(connection: sa.Connection, now: datetime) -> Intent:
        _check_lives(connection, whose)
        intent = Intent(
            intent_id=intent_id,
            table_id=whose.table_id if isinstance(whose, Table) else None,
            kind=kind,
            prefix=_PREFIXES[kind](whose.location, intent_id),
            owner=registry.owner,
            lease_until=now + timedelta(seconds=registry.settings.lease_seconds),
            topic_id=whose.topic_id if isinstance(whose, Topic) else None,
            metadata_version=whose.version if isinstance(whose, Table) and is_kept else None,
        )
        intents.insert(connection, intent, now)
        return intent

    intent = registry.front.commit(work)
    registry.keep(intent_id)
    return intent


def _check_lives(connection: sa.Connection, whose: Table | Topic) -> None:
    if isinstance(whose, Table):
        if tables.live_version(connection, whose.table_id) is None:
            raise TableNotFound(f"Table does not exist: {whose.identifier} (it was dropped)")
        return
    found = topics.by_id(connection, whose.topic_id)
    if found is None or found.deleted_at is not None:
        raise TopicNotFound(f"Topic does not exist: {whose.name} (it was deleted)")


def take_registered(
    connection: sa.Connection, registry: Registry, intent: Intent, now: datetime, *, outlived: bool = False
) -> bool:
    """Take an intent in the transaction that registers its files. False if it is gone or has been recovered.

    With `outlived` others, such as lost tasks of Spark's, may have left more below its prefix, or may still write there: what is
    not registered is swept once they have had a lease's time.
    """
    if not intents.take(connection, intent.intent_id):
        return False
    if outlived:
        first = now + timedelta(seconds=registry.settings.lease_seconds)
        orphan_sweeps.insert(connection, orphan_sweeps.OrphanSweep(intent.prefix, now, first))
    return True


def abort(registry: Registry, intent: Intent, *, sweep_again: bool = False) -> None:
    """Give a write up: first its claim, then its objects, then its row. A death in between leaves the rest to recovery.

    With `sweep_again` others, such as Spark's tasks, may still write below its prefix: the row stays for one more sweep.

    The claim goes first because a registration whose answer was lost may still be under way in the database: it is waited
    for, and if it went through, the intent is gone and its files are not ours to delete. An intent that recovery or a drop
    has taken can never be registered: its files go too, and its row stays for the last sweep.
    """
    registry.let_go(intent.intent_id)
    marked, is_ours = _mark(registry, intent)
    if marked is None:
        return
    registry.engine(intent.prefix).delete_prefix(intent.prefix)
    if is_ours:
        _finish(registry, intent, marked, sweep_again)


@retried
def _mark(registry: Registry, intent: Intent) -> tuple[datetime | None, bool]:
    """(when it was marked, whether it was open until now); no time for one that is registered."""
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        is_ours = intents.mark_recovered(connection, intent.intent_id, now, sweep_after=now)
        is_known = is_ours or intents.is_known(connection, intent.intent_id)
        return now if is_known else None, is_ours


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


@contextmanager
def declared(registry: Registry, whose: Table | Topic, kind: str = "write") -> Iterator[Intent]:
    """An intent for a block that commits it. If anything goes wrong in the block, the write is given up.

    Not for a block whose error may leave it unknown whether it was committed (resolve_unknown_commit.py). Raises as `open_intent`.
    """
    intent = open_intent(registry, whose, kind)
    try:
        yield intent
    except BaseException:
        give_up(registry, intent)
        raise


def is_open(connection: sa.Connection, intent: Intent) -> bool:
    return intents.load(connection, intent.intent_id) is not None

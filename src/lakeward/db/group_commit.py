"""Group commit: commits that many threads want at once go into one transaction.

The first thread that comes to a line leads it. It does its own work, once it has the writer lock on SQLite, and on PostgreSQL with
the table's row locked; then it takes what has come meanwhile, hands the lead on, and runs all of that in the same transaction,
each member under a savepoint. A thread that comes alone leads itself: no other thread, no savepoint, no wait.

Whoever waits is answered after the commit only. What fails in a group, or with it, is run again alone by its own thread, so
that its answer is the one it would have had without the group.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect, lock_order, pipeline
from lakeward.db.database import Database
from lakeward.db.retry import retried
from lakeward.errors import CommitUnknown, DatabaseError, RegistryUnavailable

T = TypeVar("T")

# What a commit does in the transaction; the clock tells the registry's time, on PostgreSQL together with what the work sent before
# it asks. It may be run again, by another thread.
Work = Callable[[sa.Connection, dialect.Clock], T]

ROOM = 1_024  # commits that wait or run at once; further threads wait outside
TABLES_KEPT = 10_000  # tables whose use is remembered


class GroupCommitLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a group gets: other processes wait while it runs."""

    commits: int = 64
    files: int = 256  # unless a single commit has more


class GroupCommitStatus(msgspec.Struct, kw_only=True):
    """What group commit has done since the registry was opened, and what waits in it now."""

    commits: int = 0  # acknowledged, in groups and alone
    groups: int = 0  # transactions that carried two commits or more
    grouped: int = 0  # commits that went with a group
    largest_group: int = 0
    run_again: int = 0  # members that failed in a group, or with it, and were run again alone
    failures: int = 0  # transactions that failed
    failures_in_a_row: int = 0
    waited_seconds: float = 0.0  # of all commits together, from the call until the work began
    waiting: int = 0  # now
    longest_wait_seconds: float = 0.0  # of those that wait now, or run in a transaction of their own
    last_commit: datetime | None = None


FrontStatus = GroupCommitStatus  # its earlier name


class _State(Enum):
    WAITS = "waits"
    LEADS = "leads"
    COMMITTED = "committed"
    ALONE = "alone"  # nothing of it was committed: run it again, alone
    FAILED = "failed"


class _Member(Generic[T]):
    def __init__(self, work: Work[T], table_id: int | None, weight: int) -> None:
        self.work = work
        self.table_id = table_id
        self.weight = weight
        self.came = time.perf_counter()
        self.state = _State.WAITS
        self.result: T | None = None
        self.error: Exception | None = None
        self.latch: threading.Lock | None = None  # held while the member's thread is to wait

    def wake(self, state: _State) -> None:
        self.state = state
        if self.latch is not None:
            self.latch.release()


class GroupCommit:
    """One for each open registry; threads share it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()  # of everything below; held for microseconds
        # Who waits, by line: a line is there while somebody leads it. SQLite has one, PostgreSQL one a table, since tables
        # do not wait for each other there; a group then locks one table alone, and no two groups can deadlock.
        self._lines: dict[int, deque[_Member[Any]]] = {}
        self._room = threading.BoundedSemaphore(ROOM)
        self._alone: dict[object, float] = {}  # since when each commit without a line is under way
        self._status = GroupCommitStatus()
        self._last_commit = 0.0
        self._tables: dict[int, None] = {}  # those that were written to, the latest last
        self.limits = GroupCommitLimits()

    @retried
    def commit(self, work: Work[T], *, table_id: int | None = None, weight: int = 1) -> T:
        """Run `work` in a transaction, maybe one with others' work, and return its answer once that is committed.

        Args:
            table_id: the table whose row is locked first; without one PostgreSQL gets a transaction for this work alone.
            weight: its share of a group, in files.

        Raises:
            CommitUnknown: the work may be committed.
            RegistryUnavailable: no answer. RegistryBusy: others had the registry for too long.
            DatabaseError: the database refused a statement.
            NestedTransaction, RegistryLost, ForkedProcess: as `Database.transaction`.
            What `work` raises.
        """
        self._database.check_free()  # before there is a line to wait in, for a turn that this thread may have itself
        if table_id is None and not self._database.is_sqlite:
            return self.commit_alone(work)
        line = 0 if table_id is None or self._database.is_sqlite else table_id
        with self._room:
            member, leads = self._join(line, _Member(work, table_id, weight))
            if not leads:
                leads = self._woken(line, member)
            if leads:
                self._lead(line, member, table_id)
        if member.state is _State.ALONE:
            return self.commit_alone(work, table_id=table_id)
        if member.error is not None:
            raise member.error
        return member.result  # type: ignore[return-value]

    @retried
    def commit_alone(self, work: Work[T], *, table_id: int | None = None) -> T:
        """As `commit`, in a transaction of its own and in the caller's thread."""
        self._database.check_free()
        call, came = object(), time.perf_counter()
        with self._lock:
            self._alone[call] = came
        try:
            with self._database.transaction() as connection:
                _lock(connection, table_id)
                waited = time.perf_counter() - came
                result = work(connection, dialect.clock(connection))
        except (DatabaseError, RegistryUnavailable):
            self._count_failure()
            raise
        finally:
            with self._lock:
                del self._alone[call]
        self._count([] if table_id is None else [table_id], [waited])
        return result

    def status(self) -> GroupCommitStatus:
        with self._lock:
            lines = [line for line in self._lines.values() if line]
            now = time.perf_counter()
            return msgspec.structs.replace(
                self._status,
                waiting=sum(len(line) for line in lines),
                longest_wait_seconds=now - min([now, *(line[0].came for line in lines), *self._alone.values()]),
                last_commit=datetime.fromtimestamp(self._last_commit, UTC) if self._last_commit else None,
            )

    def tables(self) -> list[int]:
        """The ids of the tables that were written to lately, the latest last."""
        with self._lock:
            return list(self._tables)

    def forget(self, table_id: int) -> None:
        """A table is gone."""
        with self._lock:
            self._tables.pop(table_id, None)

    # The line ----------------------------------------------------------------------------------------------------------
    def _join(self, line: int, member: _Member[T]) -> tuple[_Member[T], bool]:
        """Stand in line; whether the member leads it."""
        with self._lock:
            waiting = self._lines.get(line)
            if waiting is None:
                self._lines[line] = deque([member])
                return member, True
            member.latch = threading.Lock()
            member.latch.acquire()
            waiting.append(member)
            return member, False

    def _woken(self, line: int, member: _Member[Any]) -> bool:
        """Wait until the member leads or has its answer; which of them."""
        assert member.latch is not None
        try:
            member.latch.acquire()
        except BaseException:  # the thread is interrupted: nobody is to run what it gives up, if that is still possible
            self._leave(line, member)
            raise
        return member.state is _State.LEADS

    def _leave(self, line: int, member: _Member[Any]) -> None:
        """Take a member out of its line, if nobody has taken it yet; if it led, another one leads."""
        with self._lock:
            waiting = self._lines.get(line)
            if waiting is None or member not in waiting:
                return
            waiting.remove(member)
            if member.state is _State.LEADS:
                self._hand_on(line)

    def _hand_on(self, line: int) -> None:
        waiting = self._lines[line]
        if waiting:
            waiting[0].wake(_State.LEADS)
        else:
            del self._lines[line]

    def _take(self, line: int) -> list[_Member[Any]]:
        """The leader's group: itself and those behind it. The next one leads from here on."""
        with self._lock:
            waiting = self._lines[line]
            group = [waiting.popleft()]
            weight, limits = group[0].weight, self.limits
            while waiting and len(group) < limits.commits and weight + waiting[0].weight <= limits.files:
                weight += waiting[0].weight
                group.append(waiting.popleft())
            self._hand_on(line)
            return group

    # The group ---------------------------------------------------------------------------------------------------------
    def _lead(self, line: int, member: _Member[Any], table_id: int | None) -> None:
        """Commit the member and those behind it, and wake them. Raises what interrupts the leader's own thread."""
        member.state = _State.LEADS
        member.latch = None
        group: list[_Member[Any]] = []
        has_run = False
        try:
            with self._database.transaction() as connection:
                _lock(connection, table_id)
                clock = dialect.clock(connection)
                began = time.perf_counter()
                member.result = member.work(connection, clock)
                group = self._take(line)
                followed = time.perf_counter()
                _run(connection, group[1:], clock)
                has_run = True
        except BaseException as error:
            if isinstance(error, (DatabaseError, RegistryUnavailable)):
                self._count_failure()
            told: RegistryUnavailable | None = None
            if isinstance(error, CommitUnknown):
                told = CommitUnknown(str(error))
            elif has_run and not isinstance(error, Exception):
                told = CommitUnknown(f"the commit was interrupted by {type(error).__name__}")
            elif not group and isinstance(error, RegistryUnavailable):  # as it would be for each of those behind
                group, told = self._take(line), error
            if not group:
                self._leave(line, member)
                raise
            self._fail(member, group, error, told)
            return
        if len(group) == 1:
            self._count([] if table_id is None else [table_id], [began - member.came])
            return
        committed = [each for each in group if each.state is not _State.ALONE]
        self._count(
            [each.table_id for each in committed if each.table_id is not None],
            [(began if each is member else followed) - each.came for each in committed],
            len(group),
        )
        _wake(group, lambda each: _State.ALONE if each.state is _State.ALONE else _State.COMMITTED)

    def _fail(
        self, leader: _Member[Any], group: list[_Member[Any]], error: BaseException, told: RegistryUnavailable | None
    ) -> None:
        """Tell a group of its transaction's error. Without `told` nothing is committed, and each member runs again alone."""
        others = [each for each in group if each is not leader]
        if told is not None:
            for each in others:
                each.error = type(told)(str(told))
                each.error.__cause__ = error
        _wake(others, lambda each: _State.ALONE if told is None else _State.FAILED)
        if others and told is None and isinstance(error, Exception):
            leader.state = _State.ALONE
        else:
            raise error

    # Figures -----------------------------------------------------------------------------------------------------------
    def _count(self, table_ids: list[int], waits: list[float], members: int = 1) -> None:
        with self._lock:
            for table_id in table_ids:
                self._tables.pop(table_id, None)
                self._tables[table_id] = None
            while len(self._tables) > TABLES_KEPT:
                del self._tables[next(iter(self._tables))]
            status, self._last_commit = self._status, time.time()
            status.commits += len(waits)
            status.failures_in_a_row = 0
            status.waited_seconds += sum(waits)
            if members > 1:
                status.groups += 1
                status.grouped += len(waits)
                status.largest_group = max(status.largest_group, members)
                status.run_again += members - len(waits)

    def _count_failure(self) -> None:
        with self._lock:
            self._status.failures += 1
            self._status.failures_in_a_row += 1


def _wake(group: list[_Member[Any]], state: Callable[[_Member[Any]], _State]) -> None:
    """Wake all, whatever interrupts this thread meanwhile: nobody else would."""
    waiting = list(group)
    try:
        while waiting:
            waiting[-1].wake(state(waiting[-1]))
            waiting.pop()
    except BaseException:
        for each in waiting:
            if each.latch is None or each.latch.locked():
                each.wake(state(each))
        raise


def _lock(connection: sa.Connection, table_id: int | None) -> None:
    if table_id is not None:
        lock_order.send_tables(connection, [table_id])


def _run(connection: sa.Connection, members: list[_Member[Any]], clock: dialect.Clock) -> None:
    """Run the work of those behind the leader, each under a savepoint; one that fails is marked to be run again alone.

    Raises whatever leaves no transaction to go on with.
    """
    if members:
        pipeline.flush(connection)  # what the database refuses of the leader's work is its own
    for member in members:
        savepoint = connection.begin_nested()
        try:
            member.result = member.work(connection, clock)
            pipeline.flush(connection)
        except Exception:
            # SQLite ends the whole transaction where its disk fails: there is nothing to roll back to then, which raises.
            savepoint.rollback()
            if connection.invalidated:
                raise
            member.state = _State.ALONE
        else:
            savepoint.commit()

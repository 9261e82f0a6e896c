"""PostgreSQL: statements that gather until one of their answers is asked for, and then go to the server together.

An exchange with the server costs what the network takes, and while a row is locked everybody else waits for it. So the
statements of a small write are sent in two parts: what it has to know, with BEGIN and the locks, and what it changes, with
COMMIT (docs/decisions/0020-two-exchanges.md). What goes to the server in another way first sends what has gathered.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from lakeward.db.drivers import UNSTORABLE, unstorable

Row = Mapping[str, Any]
# An error of ours for one of the database's, if it is one that the statement may fail with.
Refusal = Callable[[sa.exc.DBAPIError], Exception | None]

IDLE_SECONDS = 30.0  # a connection that was idle for so long is asked whether it is still one
_NAME = "lakeward_pipeline"  # of the driver's connection's attribute
_SAVEPOINT, _RELEASE = "SAVEPOINT ", "RELEASE SAVEPOINT "
_IDLE_SINCE = "lakeward_idle_since"


class Decoder(Protocol):
    def record(self, found: Sequence[Any]) -> Row: ...


class Answer(Protocol):
    """What a statement that was sent is answered; who asks waits for it."""

    def row(self) -> Row | None:
        """The only row, or none."""

    def count(self) -> int:
        """How many rows the statement was about."""


class Done:
    """The answer of a statement that was executed at once."""

    __slots__ = ("_count", "_row")

    def __init__(self, row: Row | None, count: int) -> None:
        self._row, self._count = row, count

    def row(self) -> Row | None:
        return self._row

    def count(self) -> int:
        return self._count


class Sent:
    """A statement that waits to be sent, or was."""

    __slots__ = ("_connection", "_decoder", "_pipeline", "cursor", "is_prepared", "parameters", "refusal", "text")

    def __init__(
        self,
        pipeline: Pipeline,
        connection: sa.Connection,
        text: str,
        parameters: Row | Sequence[Row] | None,
        decoder: Decoder | None,
        refusal: Refusal | None,
    ) -> None:
        self._pipeline, self._connection, self._decoder = pipeline, connection, decoder
        self.text, self.parameters, self.refusal = text, parameters, refusal
        self.is_prepared: bool | None = parameters is not None
        self.cursor: Any = None

    def execute(self, driver: Any) -> None:
        cursor = self.cursor or driver.cursor()
        if isinstance(self.parameters, list):
            cursor.executemany(self.text, self.parameters)
        else:
            cursor.execute(self.text, self.parameters, prepare=self.is_prepared)
        self.cursor = cursor

    def _wait(self) -> Any:
        if self.cursor is None:
            self._pipeline.flush(self._connection)
        return self.cursor

    def row(self) -> Row | None:
        assert self._decoder is not None
        found = self._wait().fetchone()
        return None if found is None else self._decoder.record(found)

    def count(self) -> int:
        return int(self._wait().rowcount)


class Pipeline:
    """Of one connection of the pool: what has gathered in its transaction."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._begin: str | None = None  # where it has not been sent yet
        self._waiting: list[Sent] = []

    def begin(self, statement: str | None) -> None:
        self._begin = statement
        self._waiting.clear()

    def gather(self, connection: sa.Connection, text: str) -> None:
        self._waiting.append(Sent(self, connection, text, None, None, None))

    def forget(self) -> None:
        """What has gathered since a savepoint is not wanted any more."""
        while self._waiting and not self._waiting[-1].text.startswith(_SAVEPOINT):
            self._waiting.pop()

    def send(
        self,
        connection: sa.Connection,
        text: str,
        parameters: Row | Sequence[Row],
        decoder: Decoder | None = None,
        refusal: Refusal | None = None,
    ) -> Sent:
        sent = Sent(self, connection, text, parameters, decoder, refusal)
        self._waiting.append(sent)
        return sent

    @property
    def is_empty(self) -> bool:
        return self._begin is None and not self._waiting

    def flush(self, connection: sa.Connection, *, commit: bool = False, last: Sent | None = None) -> None:
        """Send what has gathered, and with `commit` COMMIT behind it, in one exchange.

        Raises what the database refused, of the first statement that it refused; those behind it were not executed.
        """
        waiting, self._waiting = self._waiting, []
        if (
            commit and not waiting
        ):  # a transaction that has asked for nothing since its last answer, or for nothing at all
            self._begin = None
        if self._begin is not None:
            waiting.insert(0, Sent(self, connection, self._begin, None, None, None))
            self._begin = None
        if last is not None:
            waiting.append(last)
        if commit and waiting:
            waiting.append(Sent(self, connection, "COMMIT", None, None, None))
        if waiting:
            try:
                self._exchange(waiting)
            except self._errors as error:
                raise self._failed(connection, waiting, error) from error
            except UNSTORABLE as error:
                raise unstorable() from error

    def _exchange(self, waiting: Sequence[Sent]) -> None:
        first: BaseException | None = None  # those of the statements behind it say only that it failed
        try:
            with self._driver.pipeline():
                try:
                    for each in waiting:
                        each.execute(self._driver)
                except (self._errors, *UNSTORABLE) as error:
                    first = error
        except self._errors as error:
            # The driver says that the exchange cannot end, in place of what has interrupted it.
            cause = error.__context__
            first = first or (cause if cause is not None and not isinstance(cause, Exception) else error)
        if first is not None:
            raise first

    @property
    def _errors(self) -> type[Exception]:
        import psycopg

        return psycopg.Error

    def _failed(self, connection: sa.Connection, waiting: Sequence[Sent], error: Any) -> Exception:
        is_lost = connection.dialect.is_disconnect(error, self._driver, None)
        if is_lost and not connection.invalidated:
            connection.invalidate(error)
        wrapped = sa.exc.DBAPIError.instance(
            "; ".join(each.text for each in waiting), None, error, self._errors, connection_invalidated=is_lost
        )
        assert isinstance(wrapped, sa.exc.DBAPIError)
        for each in waiting:
            if each.refusal is not None and (refused := each.refusal(wrapped)) is not None:
                refused.__cause__ = wrapped
                return refused
        return wrapped


def of(connection: sa.Connection) -> Pipeline | None:
    """None for SQLite, for connections that are not ours, and where somebody listens to every statement of the engine."""
    if connection.dialect.name == "sqlite" or connection.engine.dispatch.before_cursor_execute:
        return None
    return _of(connection)


def _of(connection: sa.Connection) -> Pipeline | None:
    return getattr(connection.connection.dbapi_connection, _NAME, None)


def flush(connection: sa.Connection, *, commit: bool = False) -> None:
    if connection.dialect.name != "sqlite" and (found := _of(connection)) is not None:
        found.flush(connection, commit=commit)


def install(engine: sa.Engine) -> None:
    """For an engine of PostgreSQL whose connections are in autocommit mode: transactions begin with their first statements."""

    @sa.event.listens_for(engine, "connect")
    def _connected(driver: Any, _record: Any) -> None:
        setattr(driver, _NAME, Pipeline(driver))

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if (found := _of(connection)) is not None:
            found.begin(connection.get_execution_options().get("lakeward_begin", "BEGIN"))

    def _before(cursor: Any, statement: str, *given: Any) -> bool:
        connection = given[-1].root_connection
        found = _of(connection)
        if found is None:
            return False
        # These cannot fail, if nothing does that is sent before them.
        if statement.startswith(_SAVEPOINT) or (found.is_empty and statement.startswith(_RELEASE)):
            found.gather(connection, statement)
            return True
        if found.is_empty:
            return False
        last = Sent(found, connection, statement, given[0] if len(given) > 1 else None, None, None)
        last.cursor, last.is_prepared = cursor, None
        found.flush(connection, last=last)
        return True

    for way in ("do_execute", "do_execute_no_params", "do_executemany"):  # whatever SQLAlchemy executes itself
        sa.event.listen(engine, way, _before)

    @sa.event.listens_for(engine, "rollback_savepoint")
    def _rolled_back(connection: sa.Connection, *_: Any) -> None:
        if not connection.invalidated and (found := _of(connection)) is not None:
            found.forget()

    @sa.event.listens_for(engine, "checkin")
    def _idle(_driver: Any, record: Any) -> None:
        record.info[_IDLE_SINCE] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def _checked(driver: Any, record: Any, _fairy: Any) -> None:
        """A server that has ended a connection has said so on it, which is seen without a question."""
        since = record.info.get(_IDLE_SINCE)
        if since is None or not (driver.closed or time.monotonic() - since > IDLE_SECONDS or _has_news(driver)):
            return
        try:
            driver.execute("")
        except Exception as error:
            raise sa.exc.InvalidatePoolError from error


def _has_news(driver: Any) -> bool:
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    return bool(poll.poll(0))

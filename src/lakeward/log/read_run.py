"""The sync runs of those who read the log. That of a stream of Spark's lives in the process that plans the stream's batches."""

from __future__ import annotations

import atexit
import json
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakeward.config import Settings
from lakeward.log.read import Slice
from lakeward.ops.records.operations import Document, OperationType, SyncMode
from lakeward.ops.run_recorder import Recorder
from lakeward.registry import Registry, open_registry


class _Stopped(SystemExit):
    """Spark ends the process: the query was stopped."""


class StreamRun:
    """Begun with a stream's first batch. Records count when Spark commits their batch, which it does with the next one."""

    def __init__(self, settings: Settings, group: str, topics: Sequence[str]) -> None:
        """Raises RegistryUnavailable."""
        # A handle of its own: the others are open for one call each.
        self._registry: Registry = open_registry(settings, touch_warehouse=False)
        self._planned: dict[str, int] = {}
        self._error: BaseException | None = None
        try:
            self._recorder = log_recorder(self._registry, topics, {"group": group, "engine": "spark"})
        except BaseException:
            self._registry.close()
            raise
        self._end_in_order()

    def planned(self, end: Mapping[str, Any], slices: Iterable[Slice]) -> None:
        """A batch up to `end` is going to read these."""
        self._planned[_key(end)] = sum(each.end - each.first for each in slices)

    def committed(self, end: Mapping[str, Any]) -> None:
        """The batch up to `end` is done. One that another process has planned is not counted: it is of that one's run."""
        self._recorder.add(records_processed=self._planned.pop(_key(end), 0))
        self._recorder.flush()

    def failed(self, error: BaseException) -> None:
        if not isinstance(error, _Stopped):
            self._error = error
        if isinstance(error, Exception):
            self._recorder.failed(error)

    def end(self) -> None:
        """Called as Spark's process ends: Spark has closed its connection, and its signal may come still. Twice is once."""
        if self._owns_signal:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._recorder.end(self._error)
        self._registry.close()

    def _end_in_order(self) -> None:
        """Spark stops a stream by closing the connection to this process, which is of this stream alone, and ending it by a
        signal: which by itself leaves no time to end the run. The signal may come before Spark's loop calls `end`, or in place
        of that; so the process's exit calls it too."""
        is_main = threading.current_thread() is threading.main_thread()
        self._owns_signal = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._owns_signal:
            signal.signal(signal.SIGTERM, _stop)
            atexit.register(self.end)


def _stop(*_: object) -> None:
    """Once, and no more than raise: what was interrupted may hold what ending the run needs."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def log_recorder(registry: Registry, topics: Iterable[str], destination: Document, owner: object = None) -> Recorder:
    """The run of somebody who reads topics. Raises as Recorder."""
    names = sorted(topics)
    return Recorder(
        registry,
        ",".join(names),
        SyncMode.STREAM,
        operation=OperationType.READ,
        source_info={"kind": "log", "topics": names},
        destination_info=destination,
        owner=owner,
    )


def _key(end: Mapping[str, Any]) -> str:
    return json.dumps(end, sort_keys=True)

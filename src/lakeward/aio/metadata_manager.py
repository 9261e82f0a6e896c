"""`lakeward.metadata.MetadataManager`, to await: each method runs the one of the same name in a thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from lakeward.aio.threads import Threads
from lakeward.metadata import MetadataManager as Manager

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Manager, P], T],
) -> Callable[Concatenate[MetadataManager, P], Coroutine[Any, Any, T]]:
    async def run(self: MetadataManager, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await self._threads.run(method, self._manager, *arguments, **named)

    update_wrapper(run, method)
    return run


class MetadataManager:
    """See `lakeward.metadata.MetadataManager`: the same methods, meanings and errors."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._manager = (
            arguments[0] if arguments and isinstance(arguments[0], Manager) else Manager(*arguments, **named)
        )
        self._threads = Threads()

    async def close(self) -> None:
        await self._threads.run(self._manager.close)
        await self._threads.close()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    initialize = _awaited(Manager.initialize)

    async def run(self, call: Callable[[Manager], T]) -> T:
        """What a function makes of the manager, in one thread: several operations in one transaction, say."""
        return await self._threads.run(call, self._manager)

    update_stream_position = _awaited(Manager.update_stream_position)
    get_stream_position = _awaited(Manager.get_stream_position)
    update_batch_timestamp = _awaited(Manager.update_batch_timestamp)
    get_batch_timestamp = _awaited(Manager.get_batch_timestamp)
    update_initial_marker = _awaited(Manager.update_initial_marker)
    get_initial_marker = _awaited(Manager.get_initial_marker)
    get_active_markers = _awaited(Manager.get_active_markers)
    delete_marker = _awaited(Manager.delete_marker)
    register_schema = _awaited(Manager.register_schema)
    get_schema_version = _awaited(Manager.get_schema_version)
    list_schema_versions = _awaited(Manager.list_schema_versions)
    list_schema_tables = _awaited(Manager.list_schema_tables)
    diff_schema_versions = _awaited(Manager.diff_schema_versions)
    check_schema_compatibility = _awaited(Manager.check_schema_compatibility)
    tie_schema_version = _awaited(Manager.tie_schema_version)
    start_sync_run = _awaited(Manager.start_sync_run)
    heartbeat = _awaited(Manager.heartbeat)
    update_sync_run = _awaited(Manager.update_sync_run)
    complete_sync_run = _awaited(Manager.complete_sync_run)
    get_sync_run = _awaited(Manager.get_sync_run)
    list_sync_runs = _awaited(Manager.list_sync_runs)
    recover_failed_runs = _awaited(Manager.recover_failed_runs)
    log_error = _awaited(Manager.log_error)
    errors_due = _awaited(Manager.errors_due)
    record_retry = _awaited(Manager.record_retry)
    resolve_error = _awaited(Manager.resolve_error)
    ignore_error = _awaited(Manager.ignore_error)
    resolve_errors = _awaited(Manager.resolve_errors)
    ignore_errors = _awaited(Manager.ignore_errors)
    get_error = _awaited(Manager.get_error)
    list_errors = _awaited(Manager.list_errors)
    get_error_trends = _awaited(Manager.get_error_trends)
    add_to_dead_letter_queue = _awaited(Manager.add_to_dead_letter_queue)
    get_dead_letter = _awaited(Manager.get_dead_letter)
    list_dead_letters = _awaited(Manager.list_dead_letters)
    count_dead_letters = _awaited(Manager.count_dead_letters)
    claim_dead_letters = _awaited(Manager.claim_dead_letters)
    release_dead_letter = _awaited(Manager.release_dead_letter)
    resolve_dead_letter = _awaited(Manager.resolve_dead_letter)
    discard_dead_letter = _awaited(Manager.discard_dead_letter)
    requeue_dead_letter = _awaited(Manager.requeue_dead_letter)
    release_dead_letters = _awaited(Manager.release_dead_letters)
    resolve_dead_letters = _awaited(Manager.resolve_dead_letters)
    discard_dead_letters = _awaited(Manager.discard_dead_letters)
    requeue_dead_letters = _awaited(Manager.requeue_dead_letters)
    get_sync_statistics = _awaited(Manager.get_sync_statistics)
    cleanup_old_metadata = _awaited(Manager.cleanup_old_metadata)

"""`lakeward.metadata.MetadataManager`, to await: each method runs the one of the same name in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from lakeward.aio.threads import Awaited, awaited
from lakeward.metadata import MetadataManager as Manager

T = TypeVar("T")


class MetadataManager(Awaited):
    """See `lakeward.metadata.MetadataManager`: the same methods, meanings and errors."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        is_made = arguments and isinstance(arguments[0], Manager)
        super().__init__(arguments[0] if is_made else Manager(*arguments, **named))

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def run(self, call: Callable[[Manager], T]) -> T:
        """What a function makes of the manager, in one thread: several operations in one transaction, say."""
        return await self._run(lambda: call(self._front))

    initialize = awaited(Manager.initialize)
    update_stream_position = awaited(Manager.update_stream_position)
    get_stream_position = awaited(Manager.get_stream_position)
    update_batch_timestamp = awaited(Manager.update_batch_timestamp)
    get_batch_timestamp = awaited(Manager.get_batch_timestamp)
    update_initial_marker = awaited(Manager.update_initial_marker)
    get_initial_marker = awaited(Manager.get_initial_marker)
    get_active_markers = awaited(Manager.get_active_markers)
    delete_marker = awaited(Manager.delete_marker)
    register_schema = awaited(Manager.register_schema)
    get_schema_version = awaited(Manager.get_schema_version)
    list_schema_versions = awaited(Manager.list_schema_versions)
    list_schema_tables = awaited(Manager.list_schema_tables)
    diff_schema_versions = awaited(Manager.diff_schema_versions)
    check_schema_compatibility = awaited(Manager.check_schema_compatibility)
    tie_schema_version = awaited(Manager.tie_schema_version)
    start_sync_run = awaited(Manager.start_sync_run)
    heartbeat = awaited(Manager.heartbeat)
    update_sync_run = awaited(Manager.update_sync_run)
    complete_sync_run = awaited(Manager.complete_sync_run)
    get_sync_run = awaited(Manager.get_sync_run)
    list_sync_runs = awaited(Manager.list_sync_runs)
    recover_failed_runs = awaited(Manager.recover_failed_runs)
    log_error = awaited(Manager.log_error)
    errors_due = awaited(Manager.errors_due)
    record_retry = awaited(Manager.record_retry)
    resolve_error = awaited(Manager.resolve_error)
    ignore_error = awaited(Manager.ignore_error)
    resolve_errors = awaited(Manager.resolve_errors)
    ignore_errors = awaited(Manager.ignore_errors)
    get_error = awaited(Manager.get_error)
    list_errors = awaited(Manager.list_errors)
    get_error_trends = awaited(Manager.get_error_trends)
    add_to_dead_letter_queue = awaited(Manager.add_to_dead_letter_queue)
    get_dead_letter = awaited(Manager.get_dead_letter)
    list_dead_letters = awaited(Manager.list_dead_letters)
    count_dead_letters = awaited(Manager.count_dead_letters)
    claim_dead_letters = awaited(Manager.claim_dead_letters)
    release_dead_letter = awaited(Manager.release_dead_letter)
    resolve_dead_letter = awaited(Manager.resolve_dead_letter)
    discard_dead_letter = awaited(Manager.discard_dead_letter)
    requeue_dead_letter = awaited(Manager.requeue_dead_letter)
    release_dead_letters = awaited(Manager.release_dead_letters)
    resolve_dead_letters = awaited(Manager.resolve_dead_letters)
    discard_dead_letters = awaited(Manager.discard_dead_letters)
    requeue_dead_letters = awaited(Manager.requeue_dead_letters)
    get_sync_statistics = awaited(Manager.get_sync_statistics)
    cleanup_old_metadata = awaited(Manager.cleanup_old_metadata)

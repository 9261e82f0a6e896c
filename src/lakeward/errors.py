"""Every error that Lakeward raises on purpose. `code` is stable; the message names the value and the way out."""

from __future__ import annotations


class LakewardError(Exception):
    """Base of all errors. `code` never changes between releases; `status` is the HTTP status it is answered with."""

    code = "internal"
    status = 500
    answer: str | None = None  # what a client over HTTP is told where the message names what is the server's own


class InvalidInput(LakewardError):
    """What the caller gave cannot be used; the message says which value and what would be accepted."""

    code = "invalid_input"
    status = 400


class InvalidName(InvalidInput):
    """A name of a namespace, table, topic or column that the registry or Iceberg cannot keep."""

    code = "invalid_name"


class InvalidSetting(InvalidInput):
    """A setting's value, from an argument, the environment or `lakeward.toml`, that cannot be used."""

    code = "invalid_setting"


class InvalidSchema(InvalidInput):
    """A schema, a schema change, a partition or a sort definition that Iceberg's rules refuse."""

    code = "invalid_schema"


class InvalidFilter(InvalidInput):
    """A scan's filter that cannot be read, or that compares a column with a value of another kind."""

    code = "invalid_filter"


class ColumnNotFound(InvalidInput):
    """A column that the table's schema does not have."""

    code = "column_not_found"


class FileRefused(InvalidInput):
    """A file or a batch of rows that may not enter a table. `reason` is one of the stable words below.

    Reasons: not_found, unreadable, truncated, wrong_format, unknown_column, missing_column, wrong_type, unknown_field_id,
    missing_field_id, wrong_partition, no_statistics, null_in_required, nested_json, wrong_row_count,
    already_registered, changed, schema_changed, wrong_size, wrong_checksum.
    """

    code = "file_refused"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotAuthorized(LakewardError):
    """A server asks for a token, and none or another one was sent."""

    code = "not_authorized"
    status = 401


class WarehouseNotFound(LakewardError):
    """The registry keeps no warehouse of this name."""

    code = "warehouse_not_found"
    status = 404


class NamespaceNotFound(LakewardError):
    """The warehouse has no such namespace; `lakeward tables` lists what there is."""

    code = "namespace_not_found"
    status = 404
    sought: tuple[str, ...] | None = None  # the parts of the name


class NamespaceAlreadyExists(LakewardError):
    """A namespace of this name is there already."""

    code = "namespace_already_exists"
    status = 409


class NamespaceNotEmpty(LakewardError):
    """A namespace that still has tables cannot be dropped."""

    code = "namespace_not_empty"
    status = 409


class TableNotFound(LakewardError):
    """The namespace has no such table, or it has been dropped; `lakeward tables` lists what there is."""

    code = "table_not_found"
    status = 404
    sought: tuple[str, ...] | None = None  # the parts of the name


class TableAlreadyExists(LakewardError):
    """A table of this name is there already."""

    code = "table_already_exists"
    status = 409


class TopicNotFound(LakewardError):
    """There is no such topic; `lakeward topics list` lists what there is."""

    code = "topic_not_found"
    status = 404


class TopicAlreadyExists(LakewardError):
    """A topic of this name is there already."""

    code = "topic_already_exists"
    status = 409


class PartitionNotFound(LakewardError):
    """The topic has no partition of this number."""

    code = "partition_not_found"
    status = 404


class ConsumerGroupNotFound(LakewardError):
    """No group of this name has committed an offset."""

    code = "consumer_group_not_found"
    status = 404


class InvalidOffset(InvalidInput):
    """An offset, or a segment's place, that a partition cannot have: segments neither overlap nor leave holes."""

    code = "invalid_offset"


class DataLoss(LakewardError):
    """Records that were asked for are gone: retention has deleted them, or a segment's file is missing or cut short."""

    code = "data_loss"


class ParkedEventNotFound(LakewardError):
    """There is no parked event of this number; `lakeward astha parked` lists them."""

    code = "parked_event_not_found"
    status = 404


class SubscriberRefused(InvalidInput):
    """Its name is unknown or taken, its subscriptions are not those of its name, or it came too late."""

    code = "subscriber_refused"


class PartitionMetadataNotFound(LakewardError):
    """No footer is stored for a path: an error, never an empty answer."""

    code = "partition_metadata_not_found"
    status = 404


class MetadataVersionNotFound(LakewardError):
    """The table has had no metadata version of this number."""

    code = "metadata_version_not_found"
    status = 404


class SnapshotNotFound(LakewardError):
    """A table has no such snapshot, or it has expired."""

    code = "snapshot_not_found"
    status = 404


class RefNotFound(LakewardError):
    """A table has no branch or tag of this name."""

    code = "ref_not_found"
    status = 404


class RefAlreadyExists(LakewardError):
    """The table has a branch or tag of this name already."""

    code = "ref_already_exists"
    status = 409


class IntentLost(LakewardError):
    """The write's intent is gone: its lease ran out and recovery took the files. Nothing was registered; write again."""

    code = "intent_lost"
    status = 409


class LeaseLost(LakewardError):
    """The fence of a lease is no longer the current one: another owner has taken over."""

    code = "lease_lost"
    status = 409


class LeaseHeld(LakewardError):
    """Somebody else holds the lease, and the wait for it ran out."""

    code = "lease_held"
    status = 503


class BatchOutOfOrder(LakewardError):
    """A batch says that it starts where the stream does not stand."""

    code = "batch_out_of_order"
    status = 409


class MetadataConflict(LakewardError):
    """The table's metadata moved while a snapshot was made, more often than is retried."""

    code = "metadata_conflict"
    status = 503


class SyncRunNotFound(LakewardError):
    """There is no run of this number; `lakeward runs list` lists them."""

    code = "sync_run_not_found"
    status = 404


class ErrorRecordNotFound(LakewardError):
    """There is no error of this number; `lakeward errors list` lists them."""

    code = "error_record_not_found"
    status = 404


class DeadLetterNotFound(LakewardError):
    """There is no dead letter of this number; `lakeward dlq list` lists them."""

    code = "dead_letter_not_found"
    status = 404


class SchemaVersionNotFound(LakewardError):
    """No schema is registered under this name and version; `lakeward schemas list` lists them."""

    code = "schema_version_not_found"
    status = 404


class StatusConflict(LakewardError):
    """A run, an error or a dead letter is not in a state from which this may be done. Nothing was changed."""

    code = "status_conflict"
    status = 409


class PositionConflict(LakewardError):
    """A position is not the one that was expected: somebody else has moved it. Nothing was changed."""

    code = "position_conflict"
    status = 409


class RegistryUnavailable(LakewardError):
    """The registry's database does not answer."""

    code = "registry_unavailable"
    status = 503
    answer = "the registry does not answer; try again in a moment"


class CommitUnknown(RegistryUnavailable):
    """Whether a transaction was committed is not known. Of every other error of one, nothing was committed."""

    code = "commit_unknown"


class RegistryBusy(RegistryUnavailable):
    """Other writers had the registry for too long; the message says who has it. Nothing was written."""

    code = "registry_busy"


class RegistryLost(LakewardError):
    """What this handle has open is not, or not surely, the registry any more: open it anew."""

    code = "registry_lost"
    status = 503
    answer = "the server has lost its registry and must be started anew; its log says why"


class ForkedProcess(LakewardError):
    """What a parent process has open is used in its forked child; the child opens its own."""

    code = "forked_process"
    answer = "the server is a forked process, and its registry is open in the parent; its log says more"


class NestedTransaction(InvalidInput):
    """A thread that is in a transaction asked for another one, which would wait for it."""

    code = "nested_transaction"


class RegistryOutdated(LakewardError):
    """The registry's schema is older than this code; `lakeward db upgrade` brings it up."""

    code = "registry_outdated"
    answer = "the registry is older than this server, whose log says how to bring it up"


class RegistryTooNew(LakewardError):
    """The registry says that code of this age may no longer read or write it."""

    code = "registry_too_new"
    answer = "the registry is too new for this server; its log says more"


class RegistryFull(RegistryUnavailable):
    """The disk that the registry's database stands on is full. Nothing was committed."""

    code = "registry_full"


class DatabaseError(LakewardError):
    """The database refused a statement; the driver's message is in this one."""

    code = "database_error"
    answer = "the registry refused a statement; the server's log says why"


class TransactionConflict(DatabaseError):
    """The database has ended a transaction, all of it, so that others could go on: a deadlock, say. Run it again.

    Lakeward runs its own again; this is raised for a transaction of the caller's, and where one has failed again and again.
    """

    code = "transaction_conflict"
    status = 503
    answer = "the registry ended the transaction so that others could go on, and nothing was changed; try again"
    is_rolled_back = False  # whether it was a transaction of Lakeward's own, as a whole


class StorageError(LakewardError):
    """A file or object could not be read, written or deleted."""

    code = "storage_error"


class ObjectNotFound(StorageError):
    """A file or object is not where it should be."""

    code = "object_not_found"
    status = 404


class StorageUnavailable(StorageError):
    """The storage does not answer, or not in time: to be tried again."""

    code = "storage_unavailable"
    status = 503


class WarehouseNotWritable(StorageError):
    """The warehouse's folder or bucket cannot be written to by this user or key."""

    code = "warehouse_not_writable"


class WarehouseTaken(LakewardError):
    """A warehouse belongs to another registry; the message says to which, and how it is adopted."""

    code = "warehouse_taken"
    status = 409


class StorageFull(StorageError):
    """The disk or the bucket's quota is full. Nothing was registered."""

    code = "storage_full"


class JavaMissing(LakewardError):
    """Spark needs a Java of a version that it supports; the message says where one was looked for."""

    code = "java_missing"


class SparkMissing(LakewardError):
    """PySpark is not installed; the extra `spark` brings it."""

    code = "spark_missing"


class ExecutorsUnfit(LakewardError):
    """The executors of a Spark cluster lack what a job needs there: Lakeward, the warehouse's folder, or keys for it. Nothing was
    written to the table."""

    code = "executors_unfit"


class ServerUnavailable(LakewardError):
    """No `lakeward serve` answers where a setting or a session's catalog leads."""

    code = "server_unavailable"
    status = 503


class SparkConnectUnsupported(LakewardError):
    """The session has no JVM gateway, so a staged write is impossible."""

    code = "spark_connect_unsupported"


class ExtraMissing(LakewardError):
    """An optional package is not installed; the message names the extra."""

    code = "extra_missing"


class AuditFailed(LakewardError):
    """The registry and the files disagree."""

    code = "audit_failed"


class CheckFailed(LakewardError):
    """A comparison of what was read with what was written failed."""

    code = "check_failed"


def error_code(error: BaseException) -> str:
    """Lakeward's stable code, or the class's name of what others raise."""
    return error.code if isinstance(error, LakewardError) else type(error).__name__


def says(error: BaseException, *texts: str) -> bool:
    """Whether one of the texts is in what a library's error says: that is looked at, and told nobody."""
    # SQLAlchemy's own error has the driver's, and beside what that says the statement and its values.
    said = str(getattr(error, "orig", None) or error)
    return any(text in said for text in texts)

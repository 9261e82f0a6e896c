"""Every error that Lakeward raises on purpose. `code` is stable; the message names the value and the way out."""

from __future__ import annotations

import re


class LakewardError(Exception):
    """Base of all errors. `code` never changes between releases; `status` is the HTTP status it is answered with.

    Each class has the code that its name spells ('invalid_name' of InvalidName), and its base's status where it names none.
    """

    code = "internal"
    status = 500
    answer: str | None = None  # what a client over HTTP is told where the message names what is the server's own

    def __init_subclass__(cls, status: int | None = None) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        cls.status = cls.status if status is None else status


class InvalidInput(LakewardError, status=400):
    """What the caller gave cannot be used; the message says which value and what would be accepted."""


class InvalidName(InvalidInput):
    """A name of a namespace, table, topic or column that the registry or Iceberg cannot keep."""


class InvalidSetting(InvalidInput):
    """A setting's value, from an argument, the environment or `lakeward.toml`, that cannot be used."""


class InvalidSchema(InvalidInput):
    """A schema, a schema change, a partition or a sort definition that Iceberg's rules refuse."""


class InvalidFilter(InvalidInput):
    """A scan's filter that cannot be read, or that compares a column with a value of another kind."""


class ColumnNotFound(InvalidInput):
    """A column that the table's schema does not have."""


class FileRefused(InvalidInput):
    """A file or a batch of rows that may not enter a table. `reason` is one of the stable words below.

    Reasons: not_found, unreadable, truncated, wrong_format, unknown_column, missing_column, wrong_type, unknown_field_id,
    missing_field_id, wrong_partition, no_statistics, null_in_required, nested_json, wrong_row_count,
    already_registered, changed, schema_changed, wrong_size, wrong_checksum.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotAuthorized(LakewardError, status=401):
    """A server asks for a token, and none or another one was sent."""


class WarehouseNotFound(LakewardError, status=404):
    """The registry keeps no warehouse of this name."""


class NamespaceNotFound(LakewardError, status=404):
    """The warehouse has no such namespace; `lakeward tables` lists what there is."""

    sought: tuple[str, ...] | None = None  # the parts of the name


class NamespaceAlreadyExists(LakewardError, status=409):
    """A namespace of this name is there already."""


class NamespaceNotEmpty(LakewardError, status=409):
    """A namespace that still has tables cannot be dropped."""


class TableNotFound(LakewardError, status=404):
    """The namespace has no such table, or it has been dropped; `lakeward tables` lists what there is."""

    sought: tuple[str, ...] | None = None  # the parts of the name


class TableAlreadyExists(LakewardError, status=409):
    """A table of this name is there already."""


class TopicNotFound(LakewardError, status=404):
    """There is no such topic; `lakeward topics list` lists what there is."""


class TopicAlreadyExists(LakewardError, status=409):
    """A topic of this name is there already."""


class PartitionNotFound(LakewardError, status=404):
    """The topic has no partition of this number."""


class ConsumerGroupNotFound(LakewardError, status=404):
    """No group of this name has committed an offset."""


class InvalidOffset(InvalidInput):
    """An offset, or a segment's place, that a partition cannot have: segments neither overlap nor leave holes."""


class DataLoss(LakewardError):
    """Records that were asked for are gone: retention has deleted them, or a segment's file is missing or cut short."""


class ParkedEventNotFound(LakewardError, status=404):
    """There is no parked event of this number; `lakeward astha parked` lists them."""


class SubscriberRefused(InvalidInput):
    """Its name is unknown or taken, its subscriptions are not those of its name, or it came too late."""


class PartitionMetadataNotFound(LakewardError, status=404):
    """No footer is stored for a path: an error, never an empty answer."""


class MetadataVersionNotFound(LakewardError, status=404):
    """The table has had no metadata version of this number."""


class SnapshotNotFound(LakewardError, status=404):
    """A table has no such snapshot, or it has expired."""


class RefNotFound(LakewardError, status=404):
    """A table has no branch or tag of this name."""


class RefAlreadyExists(LakewardError, status=409):
    """The table has a branch or tag of this name already."""


class IntentLost(LakewardError, status=409):
    """The write's intent is gone: its lease ran out and recovery took the files. Nothing was registered; write again."""


class LeaseLost(LakewardError, status=409):
    """The fence of a lease is no longer the current one: another owner has taken over."""


class LeaseHeld(LakewardError, status=503):
    """Somebody else holds the lease, and the wait for it ran out."""


class BatchOutOfOrder(LakewardError, status=409):
    """A batch says that it starts where the stream does not stand."""


class MetadataConflict(LakewardError, status=503):
    """The table's metadata moved while a snapshot was made, more often than is retried."""


class SyncRunNotFound(LakewardError, status=404):
    """There is no run of this number; `lakeward runs list` lists them."""


class ErrorRecordNotFound(LakewardError, status=404):
    """There is no error of this number; `lakeward errors list` lists them."""


class DeadLetterNotFound(LakewardError, status=404):
    """There is no dead letter of this number; `lakeward dlq list` lists them."""


class SchemaVersionNotFound(LakewardError, status=404):
    """No schema is registered under this name and version; `lakeward schemas list` lists them."""


class StatusConflict(LakewardError, status=409):
    """A run, an error or a dead letter is not in a state from which this may be done. Nothing was changed."""


class PositionConflict(LakewardError, status=409):
    """A position is not the one that was expected: somebody else has moved it. Nothing was changed."""


class RegistryUnavailable(LakewardError, status=503):
    """The registry's database does not answer."""

    answer = "the registry does not answer; try again in a moment"


class CommitUnknown(RegistryUnavailable):
    """Whether a transaction was committed is not known. Of every other error of one, nothing was committed."""


class RegistryBusy(RegistryUnavailable):
    """Other writers had the registry for too long; the message says who has it. Nothing was written."""


class RegistryLost(LakewardError, status=503):
    """What this handle has open is not, or not surely, the registry any more: open it anew."""

    answer = "the server has lost its registry and must be started anew; its log says why"


class ForkedProcess(LakewardError):
    """What a parent process has open is used in its forked child; the child opens its own."""

    answer = "the server is a forked process, and its registry is open in the parent; its log says more"


class NestedTransaction(InvalidInput):
    """A thread that is in a transaction asked for another one, which would wait for it."""


class RegistryOutdated(LakewardError):
    """The registry's schema is older than this code; `lakeward db upgrade` brings it up."""

    answer = "the registry is older than this server, whose log says how to bring it up"


class RegistryTooNew(LakewardError):
    """The registry says that code of this age may no longer read or write it."""

    answer = "the registry is too new for this server; its log says more"


class RegistryFull(RegistryUnavailable):
    """The disk that the registry's database stands on is full. Nothing was committed."""


class DatabaseError(LakewardError):
    """The database refused a statement; the driver's message is in this one."""

    answer = "the registry refused a statement; the server's log says why"


class TransactionConflict(DatabaseError, status=503):
    """The database has ended a transaction, all of it, so that others could go on: a deadlock, say. Run it again.

    Lakeward runs its own again; this is raised for a transaction of the caller's, and where one has failed again and again.
    """

    answer = "the registry ended the transaction so that others could go on, and nothing was changed; try again"
    is_rolled_back = False  # whether it was a transaction of Lakeward's own, as a whole


class StorageError(LakewardError):
    """A file or object could not be read, written or deleted."""


class ObjectNotFound(StorageError, status=404):
    """A file or object is not where it should be."""


class StorageUnavailable(StorageError, status=503):
    """The storage does not answer, or not in time: to be tried again."""


class WarehouseNotWritable(StorageError):
    """The warehouse's folder or bucket cannot be written to by this user or key."""


class WarehouseTaken(LakewardError, status=409):
    """A warehouse belongs to another registry; the message says to which, and how it is adopted."""


class StorageFull(StorageError):
    """The disk or the bucket's quota is full. Nothing was registered."""


class JavaMissing(LakewardError):
    """Spark needs a Java of a version that it supports; the message says where one was looked for."""


class SparkMissing(LakewardError):
    """PySpark is not installed; the extra `spark` brings it."""


class ExecutorsUnfit(LakewardError):
    """The executors of a Spark cluster lack what a job needs there: Lakeward, the warehouse's folder, or keys for it. Nothing was
    written to the table."""


class ServerUnavailable(LakewardError, status=503):
    """No `lakeward serve` answers where a setting or a session's catalog leads."""


class SparkConnectUnsupported(LakewardError):
    """The session has no JVM gateway, so a staged write is impossible."""


class ExtraMissing(LakewardError):
    """An optional package is not installed; the message names the extra."""


class AuditFailed(LakewardError):
    """The registry and the files disagree."""


class CheckFailed(LakewardError):
    """A comparison of what was read with what was written failed."""


def error_code(error: BaseException) -> str:
    """Lakeward's stable code, or the class's name of what others raise."""
    return error.code if isinstance(error, LakewardError) else type(error).__name__


def says(error: BaseException, *texts: str) -> bool:
    """Whether one of the texts is in what a library's error says: that is looked at, and told nobody."""
    # SQLAlchemy's own error has the driver's, and beside what that says the statement and its values.
    said = str(getattr(error, "orig", None) or error)
    return any(text in said for text in texts)

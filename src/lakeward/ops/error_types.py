"""Which type of error_log an exception has: one table, from classes."""

from __future__ import annotations

from collections.abc import Mapping

from lakeward import errors
from lakeward.ops.records.operations import ErrorType

# The nearest class counts. Those of packages that may be missing go by their names.
TYPES: Mapping[type[BaseException] | str, ErrorType] = {
    errors.AuditFailed: ErrorType.DATA,
    errors.BatchOutOfOrder: ErrorType.CONSTRAINT,
    errors.CheckFailed: ErrorType.DATA,
    errors.ColumnNotFound: ErrorType.SCHEMA,
    errors.DataLoss: ErrorType.DATA,
    errors.ExtraMissing: ErrorType.CONFIGURATION,
    errors.FileRefused: ErrorType.DATA,
    errors.IntentLost: ErrorType.TIMEOUT,
    errors.InvalidInput: ErrorType.VALIDATION,
    errors.InvalidSchema: ErrorType.SCHEMA,
    errors.InvalidSetting: ErrorType.CONFIGURATION,
    errors.JavaMissing: ErrorType.CONFIGURATION,
    errors.LeaseHeld: ErrorType.TIMEOUT,
    errors.LeaseLost: ErrorType.TIMEOUT,
    errors.NamespaceNotFound: ErrorType.SCHEMA,
    errors.NotAuthorized: ErrorType.PERMISSION,
    errors.PositionConflict: ErrorType.CONSTRAINT,
    errors.RegistryOutdated: ErrorType.CONFIGURATION,
    errors.RegistryTooNew: ErrorType.CONFIGURATION,
    errors.RegistryUnavailable: ErrorType.CONNECTION,
    errors.SparkConnectUnsupported: ErrorType.CONFIGURATION,
    errors.SparkMissing: ErrorType.CONFIGURATION,
    errors.StatusConflict: ErrorType.CONSTRAINT,
    errors.StorageError: ErrorType.RESOURCE,
    errors.TableNotFound: ErrorType.SCHEMA,
    errors.TopicNotFound: ErrorType.SCHEMA,
    errors.WarehouseNotWritable: ErrorType.PERMISSION,
    ConnectionError: ErrorType.CONNECTION,
    MemoryError: ErrorType.RESOURCE,
    OSError: ErrorType.RESOURCE,
    PermissionError: ErrorType.PERMISSION,
    TimeoutError: ErrorType.TIMEOUT,
    "pyarrow.lib.ArrowInvalid": ErrorType.DATA,
    "pyarrow.lib.ArrowTypeError": ErrorType.SCHEMA,
    "pyspark.errors.exceptions.base.AnalysisException": ErrorType.SCHEMA,
    "pyspark.errors.exceptions.base.ArithmeticException": ErrorType.TRANSFORMATION,
    "pyspark.errors.exceptions.base.ArrayIndexOutOfBoundsException": ErrorType.TRANSFORMATION,
    "pyspark.errors.exceptions.base.DateTimeException": ErrorType.TRANSFORMATION,
    "pyspark.errors.exceptions.base.NumberFormatException": ErrorType.TRANSFORMATION,
    "pyspark.errors.exceptions.base.PythonException": ErrorType.TRANSFORMATION,
}

# Why a file or a batch of rows was refused, where that says more than its class.
REASONS: Mapping[str, ErrorType] = {
    **dict.fromkeys(("null_in_required", "wrong_partition", "already_registered"), ErrorType.CONSTRAINT),
    **dict.fromkeys(
        ("unknown_column", "missing_column", "wrong_type", "unknown_field_id", "missing_field_id"), ErrorType.SCHEMA
    ),
}


def error_type(error: BaseException) -> ErrorType:
    """The type of an error; `unknown` where no class of it is in the table."""
    if isinstance(error, errors.FileRefused) and error.reason in REASONS:
        return REASONS[error.reason]
    for kind in type(error).__mro__:
        found = TYPES.get(kind) or TYPES.get(f"{kind.__module__}.{kind.__qualname__}")
        if found is not None:
            return found
    return ErrorType.UNKNOWN

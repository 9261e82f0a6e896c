"""Which type an exception has in the error log."""

from __future__ import annotations

import importlib

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.captured import PythonException

from lakeward import errors
from lakeward.errors import error_code
from lakeward.ops.error_types import TYPES, error_type
from lakeward.ops.records.operations import ErrorType


@pytest.mark.parametrize(
    ("error", "expected", "code"),
    [
        (errors.RegistryUnavailable("x"), ErrorType.CONNECTION, "registry_unavailable"),
        (errors.InvalidSetting("x"), ErrorType.CONFIGURATION, "invalid_setting"),
        (errors.InvalidOffset("x"), ErrorType.VALIDATION, "invalid_offset"),  # by InvalidInput
        (errors.StorageFull("x"), ErrorType.RESOURCE, "storage_full"),  # by StorageError
        (errors.FileRefused("wrong_type", "x"), ErrorType.SCHEMA, "file_refused"),
        (errors.FileRefused("null_in_required", "x"), ErrorType.CONSTRAINT, "file_refused"),
        (errors.FileRefused("truncated", "x"), ErrorType.DATA, "file_refused"),
        (errors.LakewardError("x"), ErrorType.UNKNOWN, "internal"),
        (ConnectionResetError(), ErrorType.CONNECTION, "ConnectionResetError"),
        (PermissionError(), ErrorType.PERMISSION, "PermissionError"),
        (FileNotFoundError(), ErrorType.RESOURCE, "FileNotFoundError"),
        (TimeoutError(), ErrorType.TIMEOUT, "TimeoutError"),
        (pa.ArrowInvalid("x"), ErrorType.DATA, "ArrowInvalid"),
        (PythonException.__new__(PythonException), ErrorType.TRANSFORMATION, "PythonException"),
        (ZeroDivisionError(), ErrorType.UNKNOWN, "ZeroDivisionError"),
    ],
)
def test_the_nearest_class_in_the_table_says_the_type(error: BaseException, expected: ErrorType, code: str) -> None:
    assert (error_type(error), error_code(error)) == (expected, code)


def test_every_class_that_is_named_by_a_text_exists() -> None:
    for name in (name for name in TYPES if isinstance(name, str)):
        module, _, kind = name.rpartition(".")
        assert issubclass(getattr(importlib.import_module(module), kind), BaseException)

"""What is common to files of text that people bring: compression, seen from the first bytes, and what is no UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lakeward.errors import FileRefused

BOM = b"\xef\xbb\xbf"
_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}


def decompressed(source: pa.NativeFile) -> Any:
    """The file's text, whatever it is compressed with."""
    start = source.read(4)
    source.seek(0)
    codec = next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)
    return source if codec is None else pa.CompressedInputStream(source, codec)


@contextmanager
def read_errors(name: str) -> Iterator[None]:
    """Raises FileRefused (truncated), with the file's name, for what compressed data raises that is not whole."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise FileRefused("truncated", f"{name}: its compressed data ends or breaks in the middle") from error


def as_text(line: bytes) -> str | bytes:
    """A line without its end; as bytes if it is no UTF-8."""
    kept = line.rstrip(b"\r\n")
    try:
        return kept.decode()
    except UnicodeDecodeError:
        return kept

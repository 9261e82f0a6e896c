"""Parquet footers as bytes: what partition_metadata keeps, and what a scan gives pyarrow instead of the object's own."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.errors import FileRefused, StorageError
from lakeward.storage.engine import StorageEngine


def encode_footer(metadata: pq.FileMetaData) -> bytes:
    """A footer as a small Parquet file without rows (magic, thrift, length, magic), which any Parquet reader opens."""
    buffer = pa.BufferOutputStream()
    metadata.write_metadata_file(buffer)
    encoded: bytes = buffer.getvalue().to_pybytes()
    return encoded


def decode_footer(footer: bytes) -> pq.FileMetaData:
    """The footer that `encode_footer` was given.

    Raises:
        FileRefused (unreadable): the bytes are no footer that this version of pyarrow can decode.
    """
    try:
        return pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError) as error:
        raise FileRefused(
            "unreadable",
            f"a stored footer of {len(footer)} bytes cannot be decoded; `lakeward footers rebuild TABLE` reads the table's again",
        ) from error


def read_footer(engine: StorageEngine, location: str) -> pq.FileMetaData:
    """The footer in the object itself.

    Raises:
        ObjectNotFound: the object is gone.
        StorageError: it cannot be read, or is no Parquet file.
    """
    with engine.open_input(location) as source:
        try:
            return pq.read_metadata(source)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                f"{location} has no footer that can be read: it is cut short, damaged or no Parquet file; restore the object"
            ) from error

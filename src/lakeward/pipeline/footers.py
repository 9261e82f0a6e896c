"""Parquet footers as bytes: what partition_metadata keeps, and what a scan gives pyarrow instead of the object's own."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.errors import FileRefused


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
        raise FileRefused("unreadable", f"a stored footer of {len(footer)} bytes cannot be decoded: {error}") from error

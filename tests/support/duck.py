"""DuckDB with the extensions that PyPI has: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg

_EXTENSIONS = (
    (duckdb_extension_httpfs, "httpfs"),
    (duckdb_extension_avro, "avro"),
    (duckdb_extension_iceberg, "iceberg"),
)


def connect() -> duckdb.DuckDBPyConnection:
    """A new connection that reads Iceberg tables, from their files or through a REST catalog."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for module, name in _EXTENSIONS:
        path = next(Path(module.__path__[0]).rglob(f"{name}.duckdb_extension"))
        connection.execute(f"load '{path}'")
    connection.execute("set timezone='UTC'")
    return connection

"""Reading the objects of a table's Iceberg metadata: what is gone is told with the way out."""

from __future__ import annotations

from lakeward.errors import ObjectNotFound
from lakeward.iceberg import metadata
from lakeward.iceberg.commit import Read
from lakeward.registry import Registry
from lakeward.tables.records.tables import Document, Table


def reader(registry: Registry, table: Table) -> Read:
    """Reads objects of the table's metadata.

    Raises (what it gives):
        TableNotFound: the object is gone because the table was dropped.
        ObjectNotFound: it is gone otherwise.
        StorageError.
    """
    engine = registry.engine(table.location)

    def read(location: str) -> bytes:
        try:
            return engine.read(location)
        except ObjectNotFound as error:
            # The first words are those that Iceberg's clients look for.
            raise ObjectNotFound(
                f"Failed to open input stream for file: {location}, of the Iceberg metadata of {table.identifier}, is gone; "
                f"`lakeward repair {table.identifier}` writes the metadata anew from the registry"
            ) from error

    return read


def read_document(registry: Registry, table: Table) -> Document | None:
    """The table's metadata as it was last written; None if it has not been. Raises as `reader`."""
    location = table.metadata_location
    return None if location is None else metadata.decode(reader(registry, table)(location))

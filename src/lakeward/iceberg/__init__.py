"""Iceberg's metadata as plain documents: schemas, partitions, table metadata, manifests, snapshots. No database, no storage."""

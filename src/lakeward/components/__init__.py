"""What looks after the tables: flush, recovery, clean-up, audit."""

from lakeward.components.schema_manager import SchemaManager, SchemaManagerConfig

__all__ = ["SchemaManager", "SchemaManagerConfig"]

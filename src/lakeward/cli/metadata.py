"""How a version of a table's metadata is shown: in the words that the commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakeward.tables.records.tables import TableMetadata


def columns_of(metadata: TableMetadata) -> list[dict[str, Any]]:
    from lakeward.iceberg.type_text import text_of

    return [
        {
            "column": field["name"],
            "type": text_of(field["type"]),
            "required": field["required"],
            "doc": field.get("doc"),
            "id": field["id"],
        }
        for field in metadata.schema["fields"]
    ]


def written_as(metadata: TableMetadata) -> dict[str, list[str]]:
    """How files of a version are partitioned and sorted, as `--partition-by` and `alter sort-by` take it."""
    from lakeward.iceberg import schemas

    names = {column.field_id: column.full_name for column in schemas.columns(metadata.schema)}

    def term(field: dict[str, Any]) -> str:
        source = names.get(field["source-id"], f"column {field['source-id']}")
        transform = str(field["transform"])
        if transform == "identity":
            return source
        name, _, width = transform.rstrip("]").partition("[")
        return f"{name}({width}, {source})" if width else f"{name}({source})"

    return {
        "partition_by": [term(field) for field in metadata.partition_by["fields"]],
        "sort_by": [
            f"{term(field)} {field['direction']} {field['null-order'].replace('-', ' ')}"
            for field in metadata.sort_by["fields"]
        ],
    }

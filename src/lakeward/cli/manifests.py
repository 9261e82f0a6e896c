"""The manifests of a table's current snapshot: listed, and merged by hand."""

from __future__ import annotations

from lakeward.cli.command import Context, limited
from lakeward.cli.names import parse_name
from lakeward.cli.render import show_record, show_rows
from lakeward.cli.tables import LimitOption, TableArgument


def list_(context: Context, table: TableArgument, limit: LimitOption = 100) -> None:
    """List the manifests that a query reads now, oldest first.

    Those of one content, spec and tier are merged once there are commit.manifest.min-count-to-merge of them.
    """
    with context.lake() as lake:
        found = lake.manifests(parse_name(table))
    columns = ("sequence_number", "content", "spec_id", "tier", "bytes", "files", "rows")
    show_rows("manifests", limited(found, limit), columns, len(found), to=context)


def merge(context: Context, table: TableArgument) -> None:
    """Merge manifests where there are many.

    `lakeward serve` does it by itself. Queries read the same rows before and after.
    """
    with context.lake() as lake:
        result = lake.merge_manifests(parse_name(table))
    show_record(result, to=context)

"""Topics of the log: make them, look at them, read and append records as JSON lines, keep them in order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from lakeward.cli.command import Context, confirm, limited
from lakeward.cli.names import parse_pairs
from lakeward.cli.render import as_row, show_record, show_rows
from lakeward.cli.shared import log_store
from lakeward.cli.tables import LimitOption
from lakeward.cli.times import duration_text, parse_milliseconds
from lakeward.errors import InvalidInput
from lakeward.log.records import TopicConfig

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC")]
_RETENTION = Annotated[
    str | None, typer.Option("--retention", help="How long records are kept: 7d, 12h, 30m, 90s, 500ms, or forever.")
]
_SET = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topic; may be given again.")
]


def list_(context: Context, limit: LimitOption = 100) -> None:
    """List the topics."""
    with log_store(context) as store:
        found = store.list_topics()
    rows = [_row(topic) for topic in limited(found, limit)]
    show_rows("topics", rows, ("topic", "partitions", "retention", "created_at"), len(found), to=context)


def create(
    context: Context,
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option("--partitions", help="They can be more later, never fewer.")] = 1,
    retention: _RETENTION = None,
    set_: _SET = None,
) -> None:
    """Make a topic."""
    wanted = TopicConfig(
        topic, partitions, parse_retention(retention), parse_pairs(set_, "--set", "--set parquet.compression=zstd")
    )
    with log_store(context, make=True) as store:
        made = store.create_topic(wanted)
    show_record(_row(made), to=context)


def show(context: Context, topic: TopicArgument) -> None:
    """Show a topic's partitions, and how many segments they have."""
    from lakeward.log import segments, topics

    with context.lake() as lake:
        found = topics.load(lake.registry, topic)
        partitions = topics.list_partitions(lake.registry, found)
        count, size = segments.count(lake.registry, found)
    record = {**_row(found), "segments": count, "bytes": size}
    rows = [{**as_row(each), "records": each.high_watermark - each.log_start_offset} for each in partitions]
    if context.json:
        show_record({**record, "of_partition": rows}, to=context)
        return
    show_record(record, to=context)
    print()
    show_rows("partitions", rows, ("partition_id", "log_start_offset", "high_watermark", "records"), to=context)


def configure(
    context: Context,
    topic: TopicArgument,
    partitions: Annotated[int | None, typer.Option("--partitions", help="More than there are.")] = None,
    retention: _RETENTION = None,
    set_: _SET = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="NAME", help="Remove a setting.")] = None,
) -> None:
    """Change a topic; what is not named stays."""
    from lakeward.log import topics

    changes: dict[str, str | None] = {
        **parse_pairs(set_, "--set", "--set parquet.compression=zstd"),
        **dict.fromkeys(unset or ()),
    }
    keep = topics.KEEP if retention is None else parse_retention(retention)
    with log_store(context) as store:
        changed = store.update_topic_config(topic, changes, partition_count=partitions, retention_ms=keep)
    show_record(_row(changed), to=context)


def delete(
    context: Context, topic: TopicArgument, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Delete a topic, its records and the offsets committed in it.

    Its files wait in quarantine; a topic made again under the name is another one.
    """
    confirm(f"delete topic {topic} with all its records?", f"topic {topic} was not deleted", yes=yes)
    with log_store(context) as store:
        store.delete_topic(topic)
    show_record({"deleted": topic}, to=context)


# Records ------------------------------------------------------------------------------------------------------------------
def append(
    context: Context,
    topic: TopicArgument,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="JSON lines; standard input without.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="Of all records.")] = None,
    producer: Annotated[
        tuple[str, int] | None,
        typer.Option("--producer", metavar="NAME SEQUENCE", help="Append once, however often it is repeated."),
    ] = None,
) -> None:
    """Append records given as JSON lines.

    A line is {"key": "k", "value": "v"}, with a timestamp and headers if wanted. All are appended at once, or none.
    """
    from lakeward.cli.records import from_lines
    from lakeward.log import topics

    with context.lake() as lake:
        found = topics.load(lake.registry, topic)
        try:
            with sys.stdin.buffer if file is None else file.open("rb") as lines:
                result = lake.log.append(topic, from_lines(lines, found), partition=partition, producer=producer)
        except OSError as error:
            raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    if context.json:
        show_record(result, to=context)
        return
    offsets = {str(each.partition_id): f"{each.base_offset} to {each.end_offset}" for each in result.segments}
    show_record({"records": result.records, "offsets": offsets, "replayed": result.replayed}, to=context)


def read(
    context: Context,
    topic: TopicArgument,
    partition: Annotated[int | None, typer.Option("--partition", help="Only this one.")] = None,
    start: Annotated[str, typer.Option("--start", help="earliest, latest or an offset.")] = "earliest",
    end: Annotated[str, typer.Option("--end", help="latest or an offset, which is not read.")] = "latest",
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many records; 0 for all.")] = 100,
) -> None:
    """Write records as JSON lines, partition by partition.

    With --json they are one document.
    """
    from lakeward.cli.records import to_document

    shown: list[dict[str, Any]] = []
    count = 0
    with context.lake() as lake:
        for batch in lake.log.scan(topic, _offset(start), _offset(end)):
            for row in batch.to_pylist():
                if partition is not None and row["partition"] != partition:
                    continue
                if limit and count == limit:
                    break
                count += 1
                document = to_document(row)
                if context.json:
                    shown.append(document)
                else:
                    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    if context.json:
        show_record({"records": shown, "total": count}, to=context)


def retain(
    context: Context, topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="All without.")] = None
) -> None:
    """Delete segments that are past their topic's retention.

    `lakeward serve` does it every minute.
    """
    with context.lake() as lake:
        result = lake.log.enforce_retention(topic)
    if context.json:
        show_record(result, to=context)
        return
    show_record({"segments": result.segments}, to=context)
    if result.kept:
        print("\nkept though they are old, since a group has not read them:\n")
        show_rows("kept", result.kept, ("topic", "partition_id", "group_id", "committed_offset"), to=context)


def compact(
    context: Context,
    topic: TopicArgument,
    megabytes: Annotated[int, typer.Option("--megabytes", min=1, help="Of a merged segment, at most.")] = 128,
) -> None:
    """Merge small neighbouring segments; offsets stay as they are."""
    with context.lake() as lake:
        result = lake.log.compact_segments(topic, megabytes * 1_000_000)
    show_record(result, to=context)


def parse_retention(text: str | None) -> int | None:
    """'7d' -> milliseconds; None for 'forever'. Raises InvalidInput."""
    if text is None or text == "forever":
        return None
    return parse_milliseconds(text)


def _offset(text: str) -> str | int:
    return int(text) if text.lstrip("-").isdecimal() else text


def _row(topic: Any) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "uuid": topic.topic_uuid,
        "partitions": topic.partition_count,
        "retention_ms": topic.retention_ms,
        "retention": "forever" if topic.retention_ms is None else duration_text(topic.retention_ms),
        "config": topic.config,
        "created_at": topic.created_at,
        "location": topic.location,
    }

"""An append is one commit: intent, files, registration; of every kind of data that needs no Spark."""

from __future__ import annotations

import json
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyiceberg.table import StaticTable

import lakeward
from lakeward import Lake, StorageManager
from lakeward.arrow import imports
from lakeward.errors import BatchOutOfOrder, FileRefused, InvalidInput
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake
from tests.support.registries import assert_exact, changes, last_sequence, rows_of

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        yield opened


def read(lake: Lake, name: Any = NAME, by: str = "id") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.scan(name).read_all().to_pylist()
    return sorted(rows, key=lambda row: str(row[by]))


def through_iceberg(lake: Lake, name: Any = NAME) -> pa.Table:
    lake.flush(name)
    return StaticTable.from_metadata(lake.table(name).metadata_location or "").scan().to_arrow()


def assert_nothing_happened(lake: Lake, name: Any = NAME) -> None:
    table = lake.table(name)
    assert objects(lake, table) == set()
    assert (table.row_count, table.file_count) == (0, 0)
    for of in ("pending_writes", "table_files", "table_stats", "partition_metadata", "applied_batches"):
        assert rows_of(lake.registry, of) == [], of


def test_every_kind_of_data_is_the_same_table(lake: Lake) -> None:
    arrow = pa.Table.from_pylist(ROWS)
    kinds: dict[str, Any] = {
        "rows": ROWS,
        "tuple": tuple(ROWS),
        "iterator": iter(ROWS),
        "columns": arrow.to_pydict(),
        "table": arrow,
        "reader": arrow.to_reader(max_chunksize=2),
        "batch": pa.RecordBatch.from_pylist(ROWS),
    }
    for kind, data in kinds.items():
        name = f"sales.{kind}"
        make_table(lake, name)
        result = lake.append(name, data)
        assert (result.rows, len(result.files), result.replayed) == (len(ROWS), 1, False), kind
        assert set(result.seconds) == {"write", "register"}
        assert read(lake, name) == ROWS, kind
        assert_nothing_left_over(lake, name)


def test_an_append_is_one_transaction_in_the_feed(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    start = last_sequence(lake.registry)
    result = lake.append(NAME, ROWS)
    found = changes(lake.registry, start)
    assert Counter(c["table_name"] for c in found) == {"table_files": 3, "table_stats": 3, "tables": 1}
    assert {c["data"]["file_path"] for c in found if c["table_name"] == "table_files"} == set(result.files)
    assert (
        result.bytes
        == lake.table(NAME).total_size
        == sum(Path(p.removeprefix("file://")).stat().st_size for p in result.files)
    )
    assert_exact(lake.registry, lake.table(NAME))


def test_empty_data_makes_no_file_and_no_error(lake: Lake) -> None:
    make_table(lake, NAME)
    empty: list[Any] = [[], pa.table({"id": pa.array([], pa.int64())}), {"id": [], "name": []}]
    for number, data in enumerate(empty):
        for batch in (None, ("s", f"{number}"), ("t", f"{number}", 0, 0)):
            result = lake.append(NAME, data, batch=batch)
            assert (result.rows, result.files, result.bytes) == (0, [], 0)
    assert objects(lake, lake.table(NAME)) == set()
    assert rows_of(lake.registry, "pending_writes") == rows_of(lake.registry, "table_files") == []
    assert len(rows_of(lake.registry, "applied_batches")) == 2 * len(empty)


TYPES: dict[str, tuple[str, list[Any]]] = {
    "b": ("boolean", [True, False, None]),
    "i": ("int", [-(2**31), 2**31 - 1, None]),
    "l": ("long", [-(2**63), 2**63 - 1, None]),
    "f": ("float", [-0.5, 3.0, None]),
    "d": ("double", [float("-inf"), float("inf"), None]),
    "dec": ("decimal(38,10)", [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.0000000001"), None]),
    "small": ("decimal(5,2)", [Decimal("-999.99"), Decimal("999.99"), None]),
    "day": ("date", [date(1, 1, 1), date(9999, 12, 31), None]),
    "naive": ("timestamp", [datetime(1, 1, 1), datetime(2026, 2, 3, 4, 5, 6, 7), None]),
    "aware": ("timestamptz", [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2026, 2, 3, tzinfo=UTC), None]),
    "text": ("string", ["", "naïve 注文 😀 \0 % ' \" \\", None]),
    "bytes": ("binary", [b"", b"\x00\xff", None]),
    "uuid": ("uuid", [UUID(int=0), UUID(int=2**128 - 1), None]),
    "fixed": ("fixed[3]", [b"\x00\x00\x00", b"\xff\xff\xff", None]),
    "list": ("list<int>", [[], [1, None, 3], None]),
    "map": ("map<string,double>", [[], [("a", 1.5), ("b", None)], None]),
    "struct": ("struct<x:int,y:struct<z:string>>", [{"x": 1, "y": {"z": "q"}}, {"x": None, "y": None}, None]),
    "deep": ("list<struct<k:list<map<string,int>>>>", [[{"k": [[("a", 1)]]}], [{"k": None}, None], None]),
}  # fmt: skip


def test_every_type_comes_back_as_it_went_in(lake: Lake) -> None:
    make_table(lake, NAME, schema={"id": "int", **{name: type_ for name, (type_, _) in TYPES.items()}})
    rows = [{"id": i, **{name: values[i] for name, (_, values) in TYPES.items()}} for i in range(3)]
    lake.append(NAME, rows)
    plain = [{**row, "uuid": None if row["uuid"] is None else row["uuid"].bytes} for row in rows]
    found = [
        {**row, "uuid": None if row["uuid"] is None else getattr(row["uuid"], "bytes", row["uuid"])}
        for row in read(lake)
    ]
    assert found == plain
    assert through_iceberg(lake).num_rows == 3
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


def test_nan_and_infinities_never_make_a_wrong_bound(lake: Lake) -> None:
    nan, inf = float("nan"), float("inf")
    make_table(lake, NAME, schema={"id": "int", "x": "double", "y": "float"})
    for values in ([nan, nan], [nan, 1.0], [-inf, inf], [-0.0, 0.0]):
        lake.append(NAME, [{"id": i, "x": v, "y": v} for i, v in enumerate(values)])
    statistics = [file.statistics for file in lake.files(NAME)]
    assert [s.nan_counts.get(2) for s in statistics] == [2, 1, 0, 0]
    assert 2 not in statistics[0].lower
    assert 2 not in statistics[0].upper
    (row,) = rows_of(lake.registry, "table_stats")
    assert row["columns"][2].bounded
    for text, count in (("x = 1.0", 1), ("x > 1000000.5", 1), ("x < -1000000.5", 1), ("x = 0.0", 2), ("x is null", 0)):
        assert lake.scan(NAME, filter=text).read_all().num_rows == count, text
    assert_exact(lake.registry, lake.table(NAME))


def test_times_with_and_without_a_zone_are_not_mixed_up(lake: Lake) -> None:
    make_table(lake, NAME, schema={"id": "int", "naive": "timestamp", "aware": "timestamptz"})
    naive, aware = datetime(2026, 3, 29, 2, 30), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    lake.append(NAME, [{"id": 1, "naive": naive, "aware": aware}])
    (row,) = read(lake)
    assert (row["naive"], row["aware"]) == (naive, aware)
    assert row["naive"].tzinfo is None
    assert row["aware"].utcoffset() == timedelta(0)
    for wrong in ({"naive": aware}, {"aware": naive}):
        with pytest.raises(FileRefused) as refused:
            lake.append(NAME, [{"id": 2, **wrong}])
        assert refused.value.reason == "wrong_type"
    assert lake.table(NAME).row_count == 1


def test_two_thousand_columns_are_written_and_read(lake: Lake) -> None:
    names = [f"c{i}" for i in range(2000)]
    make_table(lake, NAME, schema=dict.fromkeys(names, "long"))
    lake.append(NAME, pa.table({name: [i, -i] for i, name in enumerate(names)}))
    found = lake.scan(NAME, columns=["c0", "c1999"], filter="c1999 = -1999").read_all()
    assert found.to_pylist() == [{"c0": 0, "c1999": -1999}]
    assert len(lake.files(NAME)[0].statistics.value_counts) == 2000
    assert_nothing_left_over(lake, NAME)


def test_a_footer_larger_than_the_limit_is_said_so_and_read_from_the_object(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, footer_limit=1000, durable=False) as lake:
        make_table(lake, NAME, schema={f"c{i}": "long" for i in range(50)})
        (path,) = lake.append(NAME, [{"c0": 1}]).files
        (row,) = rows_of(lake.registry, "partition_metadata")
        assert (row["file_path"], row["metadata"]) == (path, None)
        assert row["metadata_size"] > 1000
        assert StorageManager(lake).load_partition_metadata(path).num_columns == 50
        assert lake.scan(NAME, columns=["c0"]).read_all().to_pylist() == [{"c0": 1}]
        assert_nothing_left_over(lake, NAME)


ODD = [
    "a b",
    "dot.ted",
    "quo'te",
    'dou"ble',
    "per%cent",
    "%2F",
    "slash/ed",
    "back`tick",
    "naïve 注文 😀",
    "=",
    "..",
    "",
]


def test_partition_values_may_be_any_text(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    values = [*ODD, None, "null", "\0", "\n", "x" * 2000]
    rows = [{"id": i, "name": value} for i, value in enumerate(values)]
    result = lake.append(NAME, rows)
    assert len(result.files) == len(set(values))
    assert [row["name"] for row in sorted(read(lake), key=lambda row: int(row["id"]))] == values
    assert lake.scan(NAME, filter="name = 'per%cent'").read_all()["id"].to_pylist() == [4]
    assert StorageManager(lake).retire_partitions("sales", "orders", [{"name": None}, {"name": ".."}]) == 2
    found = through_iceberg(lake)
    assert sorted(found["id"].to_pylist()) == [i for i, v in enumerate(values) if v not in (None, "..")]
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


def test_columns_tables_and_namespaces_may_have_any_printable_name(lake: Lake) -> None:
    odd = [name for name in ODD if name]
    name = ("per%cent 'ns'", "a.b/注文", 't"able')
    table = make_table(lake, name, schema={"id": "int", **dict.fromkeys(odd, "string")}, partition_by=["`dot.ted`"])
    lake.append(name, [{"id": 1, **dict.fromkeys(odd, "v")}])
    lake.append(name, pa.table({"id": [2], **{each: ["w"] for each in odd}}))
    assert [row["id"] for row in read(lake, name)] == [1, 2]
    assert set(through_iceberg(lake, name).column_names) == {"id", *odd}
    assert_nothing_left_over(lake, name)
    assert lake.table(name).table_uuid == table.table_uuid


def test_rows_follow_the_schema_as_it_is_at_the_append(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, [{"id": 1, "name": "a"}])
    lake.rename_column(NAME, "name", "label")
    lake.add_column(NAME, "price", "decimal(9,2)")
    lake.append(NAME, [{"price": Decimal("1.50"), "id": 2, "label": "b"}, {"id": 3}])
    assert read(lake) == [
        {"id": 1, "label": "a", "price": None},
        {"id": 2, "label": "b", "price": Decimal("1.50")},
        {"id": 3, "label": None, "price": None},
    ]
    assert [file.schema_id for file in lake.files(NAME)] == [0, 2]


def test_json_lines_are_registered_and_counted_apart(lake: Lake) -> None:
    make_table(lake, NAME, format="json")
    result = lake.append(NAME, ROWS)
    table = lake.table(NAME)
    assert (table.row_count, table.landing_row_count, table.landing_file_count) == (0, len(ROWS), 1)
    assert table.landing_size == result.bytes
    assert read(lake) == ROWS
    assert rows_of(lake.registry, "partition_metadata") == []
    assert_nothing_left_over(lake, NAME)


def test_files_that_exist_are_copied_and_never_touched(lake: Lake, tmp_path: Path) -> None:
    make_table(lake, NAME, partition_by=["name"])
    parquet, lines = tmp_path / "a b.parquet", tmp_path / "c.jsonl"
    pq.write_table(pa.table({"id": [1, 2], "name": ["x", "y"]}), parquet)
    lines.write_text("\n".join(json.dumps({"id": i, "name": "x"}) for i in (3, 4)))
    before = (parquet.read_bytes(), lines.read_bytes())
    result = lake.append(NAME, [parquet, lines], batch=("files", "1"))
    assert result.rows == 4
    assert lake.append(NAME, [parquet, lines], batch=("files", "1")).replayed
    assert (parquet.read_bytes(), lines.read_bytes()) == before
    assert [row["id"] for row in read(lake)] == [1, 2, 3, 4]
    assert_nothing_left_over(lake, NAME)


# Batches ------------------------------------------------------------------------------------------------------------------
def test_a_replayed_batch_reads_no_data_and_writes_no_file(lake: Lake) -> None:
    make_table(lake, NAME)
    first = lake.append(NAME, ROWS, batch=("s", "1", 0, 6))

    def never() -> Iterator[Any]:
        raise AssertionError("was read")
        yield

    again = lake.append(NAME, never(), batch=("s", "1", 0, 6))
    assert (again.replayed, again.files, again.rows) == (True, first.files, first.rows)
    assert objects(lake, lake.table(NAME)) == set(first.files)
    assert_nothing_left_over(lake, NAME)


def test_a_batch_out_of_order_leaves_no_file(lake: Lake) -> None:
    make_table(lake, NAME)
    first = lake.append(NAME, ROWS, batch=("s", "1", 0, 6))
    with pytest.raises(BatchOutOfOrder):
        lake.append(NAME, ROWS, batch=("s", "2", 0, 6))
    assert objects(lake, lake.table(NAME)) == set(first.files)
    assert rows_of(lake.registry, "pending_writes") == []


@pytest.mark.parametrize("batch", [("s", "1"), ("s", "1", 0, 6)])
def test_equal_batches_at_once_apply_once_and_leave_no_file_over(lake: Lake, batch: Any) -> None:
    make_table(lake, NAME)
    together = threading.Barrier(2)

    def rows() -> Iterator[Any]:
        yield from ROWS
        together.wait()  # both have written their file before either registers it

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: lake.append(NAME, rows(), batch=batch), range(2)))
    assert sorted(result.replayed for result in results) == [False, True]
    assert results[0].files == results[1].files
    assert objects(lake, lake.table(NAME)) == set(results[0].files)
    assert lake.table(NAME).row_count == len(ROWS)
    assert rows_of(lake.registry, "pending_writes") == []
    assert_nothing_left_over(lake, NAME)


def test_an_append_goes_to_its_commit_through_few_layers(lake: Lake) -> None:
    """Eight of Lakeward's own functions at most between the append and the one that runs the commit's SQL."""
    make_table(lake, NAME)
    seen: list[list[str]] = []

    def look(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "INTO table_files" in statement:
            ours = Path(lakeward.__file__).parent
            frames = [each for each in traceback.extract_stack() if Path(each.filename).is_relative_to(ours)]
            seen.append([f"{Path(each.filename).stem}.{each.name}" for each in frames])

    sa.event.listen(lake.registry.database.engine, "before_cursor_execute", look)
    lake.append(NAME, ROWS)
    (names,) = seen
    assert len(names[names.index("lake.append") + 1 : names.index("registration.commit")]) <= 8


def test_threads_that_append_at_once_are_all_counted(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: lake.append(NAME, ROWS), range(12)))
    assert lake.table(NAME).row_count == 12 * len(ROWS)
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


def test_a_sync_append_s_replay_answers_with_the_first_answer(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, metadata_updates="sync", durable=False) as lake:
        make_table(lake, NAME)
        first = lake.append(NAME, ROWS, batch=("s", "1"))
        again = lake.append(NAME, ROWS, batch=("s", "1"))
        assert first.snapshot_id is not None
        assert (again.replayed, again.files) == (True, first.files)
        assert len(lake.snapshots(NAME)) == 1


def test_append_takes_a_path_several_or_what_a_glob_gives(lake: Lake, tmp_path: Path) -> None:
    make_table(lake, NAME)
    folder = tmp_path / "incoming"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jsonl").write_text(f'{{"id": {number}, "name": "n{number}"}}\n')
    assert lake.append(NAME, folder / "0.jsonl").rows == 1
    assert lake.append(NAME, str(folder / "0.jsonl")).rows == 1
    assert lake.append(NAME, [str(folder / "0.jsonl"), folder / "1.jsonl"]).rows == 2
    assert lake.append(NAME, folder.glob("*.jsonl")).rows == 3
    assert lake.append(NAME, folder.glob("*.csv")).rows == 0
    assert lake.append(NAME, iter(ROWS)).rows == len(ROWS)


def test_a_batch_that_says_where_it_starts_says_where_it_ends(lake: Lake) -> None:
    make_table(lake, NAME)
    with pytest.raises(InvalidInput, match="not where it ends"):
        lake.append(NAME, ROWS, batch=("s", "1", 5, None))
    assert lake.append(NAME, ROWS, batch=("s", "1", None, 5)).rows == len(ROWS)


def test_a_file_that_changes_while_it_is_read_is_refused(lake: Lake, tmp_path: Path, monkeypatch: Any) -> None:
    make_table(lake, NAME)
    path = tmp_path / "a.parquet"
    lake.append(NAME, ROWS)
    (own,) = lake.files(NAME)
    path.write_bytes(lake.registry.engine(own.file_path).read(own.file_path))
    copy = imports._copy

    def copy_and_change(*arguments: Any) -> Any:
        made = copy(*arguments)
        path.write_bytes(path.read_bytes() + b"more")
        return made

    monkeypatch.setattr(imports, "_copy", copy_and_change)
    with pytest.raises(FileRefused) as refused:
        lake.append(NAME, path)
    assert refused.value.reason == "changed"
    assert lake.table(NAME).row_count == len(ROWS)
    assert_nothing_left_over(lake, NAME)


def test_a_row_that_is_in_no_list_is_named_as_such(lake: Lake) -> None:
    make_table(lake, NAME)
    with pytest.raises(InvalidInput, match="give one row as"):
        lake.append(NAME, ROWS[0])


def test_a_position_that_json_cannot_hold_is_refused(lake: Lake) -> None:
    make_table(lake, NAME)
    with pytest.raises(InvalidInput, match="JSON"):
        lake.append(NAME, ROWS, batch=("s", "1", 1, float("nan")))

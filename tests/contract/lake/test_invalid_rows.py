"""Rows that break a table's schema: where its policy says so they become dead letters, in the commit of the good rows."""

from __future__ import annotations

import gzip
import json
import math
import re
import threading
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward import Lake, StorageManager
from lakeward.errors import BatchOutOfOrder, DeadLetterNotFound, FileRefused, InvalidInput, StatusConflict
from lakeward.metadata import MetadataManager
from lakeward.ops import dead_letters, error_log, runs
from lakeward.ops.records.operations import DeadLetter, DeadLetterStatus, ErrorStatus, OperationType
from tests.support.lakes import assert_nothing_left_over, make_table, objects, open_lake
from tests.support.registries import rows_of
from tests.support.shell import Shell

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
SCHEMA = {"id": "long not null", "name": "string", "price": "decimal(9,2)", "raw": "binary"}
POLICY = {"lakeward.invalid-rows": "dead-letter"}


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Any:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def table(lake: Lake, properties: dict[str, str] | None = None, **options: Any) -> None:
    make_table(lake, NAME, schema=options.pop("schema", SCHEMA), properties=POLICY | (properties or {}), **options)


def letters(lake: Lake) -> list[DeadLetter]:
    """The oldest first."""
    return dead_letters.list_dead_letters(lake.registry, limit=None)[::-1]


def ids(lake: Lake) -> list[int]:
    return sorted(lake.scan(NAME).read_all()["id"].to_pylist())


# The policy ---------------------------------------------------------------------------------------------------------------
def test_without_the_policy_one_bad_row_refuses_the_write_and_leaves_no_letter(lake: Lake) -> None:
    make_table(lake, NAME, schema=SCHEMA)
    with pytest.raises(FileRefused) as refused:
        lake.append(NAME, [{"id": 1}, {"id": None}])
    assert refused.value.reason == "null_in_required"
    assert letters(lake) == [] and ids(lake) == []


@pytest.mark.parametrize(
    "properties",
    [
        {"lakeward.invalid-rows": "ignore"},
        {"lakeward.invalid-rows.max": "0"},
        {"lakeward.invalid-rows.max": "many"},
        {"lakeward.invalid-rows.limit": "5"},
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_by_name(lake: Lake, properties: dict[str, str]) -> None:
    make_table(lake, NAME)
    with pytest.raises(InvalidInput, match=next(iter(properties))):
        lake.set_properties(NAME, properties)


# What becomes of the rows -------------------------------------------------------------------------------------------------
def test_bad_rows_are_kept_as_they_were_given_and_good_ones_are_written(lake: Lake) -> None:
    table(lake)
    bad: list[dict[str, Any]] = [
        {"id": None, "name": "no id"},
        {"id": "two", "name": "a text for a number"},
        {"id": 2**70, "name": "too large"},
        {"id": 4, "price": Decimal("1234567890123456789012345678901234567890")},
        {"id": 5, "price": Decimal("0.001")},
        {"id": 6, "colour": "unknown"},
        {"id": 7, "raw": "a text for bytes"},
        {"id": 8, "name": "\ud800"},
        {"id": math.nan, "name": "NUL \0 inside", "raw": b"\x00\xff"},
    ]
    good = [{"id": 100 + i, "name": "NUL \0 is a character", "raw": b"\x00"} for i in range(10)]
    mixed = [row for pair in zip(bad, good, strict=False) for row in pair] + good[9:]
    result = lake.append(NAME, mixed)
    assert (result.rows, result.dead_letters) == (10, 9)
    assert ids(lake) == list(range(100, 110))
    found = letters(lake)
    assert [letter.record_data for letter in found][:-1] == bad[:-1]
    assert math.isnan(found[-1].record_data["id"]) and found[-1].record_data["raw"] == b"\x00\xff"
    assert {(x.schema_name, x.table_name, x.operation_type, x.status) for x in found} == {
        ("sales", "orders", OperationType.INSERT, DeadLetterStatus.PENDING)
    }
    reasons = [letter.envelope["reason"] for letter in found]
    assert reasons == ["null_in_required", *["wrong_type"] * 4, "unknown_column", *["wrong_type"] * 3]
    assert all(x.error_message is not None and x.error_message.startswith(x.envelope["reason"]) for x in found)
    assert "'colour'" in str(found[5].error_message)
    assert_nothing_left_over(lake, NAME)


def test_a_value_that_nothing_can_store_is_kept_as_its_repr_beside_the_others(lake: Lake) -> None:
    table(lake)
    assert lake.append(NAME, [{"id": object(), "name": "kept", "price": date(1, 1, 1)}]).dead_letters == 1
    (found,) = letters(lake)
    assert found.record_data["id"].startswith("<object object")
    assert found.record_data["name"] == "kept" and found.record_data["price"] == date(1, 1, 1)


def test_a_record_of_ten_megabytes_comes_back_whole(lake: Lake) -> None:
    table(lake)
    huge = "ä\0" * 5_000_000
    assert lake.append(NAME, [{"id": 1}, {"id": None, "name": huge}]).dead_letters == 1
    assert letters(lake)[0].record_data == {"id": None, "name": huge}


def test_if_all_rows_are_bad_the_letters_are_committed_alone(lake: Lake) -> None:
    table(lake)
    result = lake.append(NAME, [{"name": "a"}, {"name": "b"}], batch=("s", "1"))
    assert (result.rows, result.files, result.dead_letters, result.replayed) == (0, [], 2, False)
    assert [x.record_data for x in letters(lake)] == [{"name": "a"}, {"name": "b"}]
    assert lake.append(NAME, [{"name": "c"}]).dead_letters == 1  # without a key too
    assert_nothing_left_over(lake, NAME)
    assert objects(lake, lake.table(NAME)) == set()


def test_a_single_row_without_a_required_column_is_a_letter_and_so_is_one_of_a_partition_s_column(lake: Lake) -> None:
    table(lake, partition_by=["name"])
    result = lake.append(NAME, [{"id": 1}])
    assert (result.rows, result.dead_letters) == (0, 1)
    assert letters(lake)[0].envelope == {"reason": "missing_column", "row": 1}


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": [[1], [2]]}),  # a type none of whose values could fit
        pa.table({"name": ["a"]}),  # a required column is missing
        {"name": ["a", "b"]},
        [{"id": 1}, "no row"],
    ],
)
def test_a_fault_of_the_input_as_a_whole_is_refused_and_leaves_no_letter(lake: Lake, data: Any) -> None:
    table(lake)
    with pytest.raises(InvalidInput):
        lake.append(NAME, data)
    assert letters(lake) == [] and ids(lake) == []
    assert_nothing_left_over(lake, NAME)


# Kinds of data ------------------------------------------------------------------------------------------------------------
def arrow() -> pa.Table:
    broken_text = pa.Array.from_buffers(
        pa.string(), 4, [None, pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00"), pa.py_buffer(b"ab\xffd")]
    )  # fmt: skip
    prices = pa.array([Decimal("1.10"), Decimal("12345678901234567890.12"), None, None], pa.decimal128(38, 2))
    return pa.table({"id": pa.array([1, 2, 3, None], pa.int64()), "name": broken_text, "price": prices})


@pytest.mark.parametrize("kind", ["table", "reader", "batch", "columns"])
def test_rows_of_arrow_data_are_taken_apart(lake: Lake, kind: str) -> None:
    table(lake)
    data = arrow()
    forms: dict[str, Any] = {
        "table": data,
        "reader": data.to_reader(),
        "batch": data.to_batches()[0],
        "columns": {name: data[name] for name in data.column_names if name != "name"},
    }
    result = lake.append(NAME, forms[kind])
    found = [letter.record_data for letter in letters(lake)]
    if kind == "columns":
        assert (result.rows, ids(lake)) == (2, [1, 3])
        return
    assert (result.rows, ids(lake)) == (1, [1])
    assert found == [
        {"id": 2, "name": "b", "price": Decimal("12345678901234567890.12")},
        {"id": 3, "name": b"\xff", "price": None},
        {"id": None, "name": "d", "price": None},
    ]


def test_columns_of_lists_are_taken_apart_by_row(lake: Lake) -> None:
    table(lake)
    assert lake.append(NAME, {"id": [1, None, 3], "name": ["a", "b", "c"]}).dead_letters == 1
    assert letters(lake)[0].record_data == {"id": None, "name": "b"}
    assert ids(lake) == [1, 3]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_lines_of_json_say_their_file_and_line(lake: Lake, tmp_path: Path, format: str) -> None:
    table(lake, format=format)
    lines = [{"id": 1, "price": "1.10"}, {"id": "x"}, {"id": 3, "price": 1e300}, {"id": 4}, {"name": "none"}]
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl.gz"
    one.write_text("\n".join(json.dumps(line) for line in lines))
    two.write_bytes(gzip.compress(b'{"id": 10}\n\n{"id": 11, "size": 1}\n'))
    result = lake.append(NAME, [one, two], batch=("files", "1"))
    assert (result.rows, result.dead_letters) == (3, 4)
    assert ids(lake) == [1, 4, 10]
    found = letters(lake)
    assert [(Path(x.envelope["file"]).name, x.envelope["line"]) for x in found] == [
        ("one.jsonl", 2),
        ("one.jsonl", 3),
        ("one.jsonl", 5),
        ("two.jsonl.gz", 3),
    ]
    assert found[0].record_data == {"id": "x"} and found[3].record_data == {"id": 11, "size": 1}
    assert found[0].envelope["batch"] == ["files", "1"]
    assert f"{one}, line 2" in str(found[0].error_message)


def test_lines_that_are_no_objects_are_kept_as_they_stand(lake: Lake, tmp_path: Path) -> None:
    table(lake)
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 1}\n{"id": \r\n[2]\n\xff\xfe\n{"id": 3}')
    result = lake.append(NAME, tmp_path / "a.jsonl")
    assert (result.rows, result.dead_letters) == (2, 3)
    found = letters(lake)
    assert [x.record_data for x in found] == ['{"id": ', "[2]", b"\xff\xfe"]
    assert [(x.envelope["reason"], x.envelope["line"]) for x in found] == [("unreadable", n) for n in (2, 3, 4)]
    assert ids(lake) == [1, 3]


def test_a_line_that_is_no_object_is_not_kept_where_columns_are_hidden(lake: Lake, tmp_path: Path) -> None:
    table(lake, {"lakeward.redact-columns": "name"})
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2, "name": "hunter2"\n["hunter2"]\n')
    assert lake.append(NAME, tmp_path / "a.jsonl").dead_letters == 2
    assert [x.record_data for x in letters(lake)] == ["***"] * 2
    assert "hunter2" not in repr(letters(lake))


def test_a_file_that_is_cut_off_in_a_line_is_refused(lake: Lake, tmp_path: Path) -> None:
    table(lake)
    (tmp_path / "torn.jsonl").write_text('{"id": "x"}\n{"id": 2')
    with pytest.raises(FileRefused) as refused:
        lake.append(NAME, tmp_path / "torn.jsonl")
    assert refused.value.reason == "unreadable"
    assert letters(lake) == []


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_rows_of_parquet_files_with_nulls_in_required_columns_say_their_file_and_row(
    lake: Lake, tmp_path: Path, format: str
) -> None:
    table(lake, schema=SCHEMA | {"tags": "list<string not null>"}, format=format)
    tags = [["a"], ["b", None], None, [], ["c"], ["d"]]
    names = pa.array(["u", "v", "w", "x", "y", "z"])
    data = pa.table({"id": pa.array([1, 2, None, 4, None, 6]), "name": names, "tags": tags})
    pq.write_table(data, tmp_path / "bad.parquet", row_group_size=2)
    pq.write_table(pa.table({"id": [10, 11]}), tmp_path / "good.parquet")
    result = lake.append(NAME, [tmp_path / "bad.parquet", tmp_path / "good.parquet"])
    assert (result.rows, result.dead_letters) == (5, 3)
    assert ids(lake) == [1, 4, 6, 10, 11]
    found = letters(lake)
    assert [x.envelope["row"] for x in found] == [2, 3, 5]
    assert [x.record_data for x in found] == [
        {"id": 2, "name": "v", "tags": ["b", None]},
        {"id": None, "name": "w", "tags": None},
        {"id": None, "name": "y", "tags": ["c"]},
    ]
    assert {(x.envelope["reason"], x.envelope["file"]) for x in found} == {
        ("null_in_required", str(tmp_path / "bad.parquet"))
    }
    assert_nothing_left_over(lake, NAME)


def test_a_parquet_file_of_the_tables_own_form_is_rewritten_for_its_bad_rows(lake: Lake, tmp_path: Path) -> None:
    table(lake, schema={"id": "long"})
    lake.append(NAME, [{"id": 1}, {"id": None}])
    own = lake.files(NAME)[0].file_path.removeprefix("file://")
    make_table(lake, "sales.strict", schema={"id": "long not null"}, properties=POLICY)
    assert lake.append("sales.strict", own).dead_letters == 1
    assert lake.scan("sales.strict").read_all()["id"].to_pylist() == [1]
    with pytest.raises(FileRefused, match="more than 1 rows"):
        lake.set_properties("sales.strict", {"lakeward.invalid-rows.max": "1"})
        lake.append("sales.strict", [own, own])


def test_parquet_files_whose_columns_do_not_fit_are_refused(lake: Lake, tmp_path: Path) -> None:
    table(lake)
    pq.write_table(pa.table({"id": [[1]]}), tmp_path / "a.parquet")
    with pytest.raises(FileRefused) as refused:
        lake.append(NAME, tmp_path / "a.parquet")
    assert refused.value.reason == "wrong_type" and letters(lake) == []


def forms(data: pa.Table, folder: Path) -> dict[str, Any]:
    """The same rows by every way in that needs no Spark."""
    rows = data.to_pylist()
    pq.write_table(data, folder / "a.parquet")
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "a.json").write_text(json.dumps(rows))
    lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]  # of plain values
    (folder / "a.csv").write_text("\n".join([",".join(data.column_names), *lines, ""]))
    paths = {name: folder / f"a.{name}" for name in ("parquet", "jsonl", "json", "csv")}
    return {"rows": rows, "columns": data.to_pydict(), "arrow": data, "frame": data.to_reader(), **paths}


WAYS = ["rows", "columns", "arrow", "frame", "parquet", "jsonl", "json", "csv"]


@pytest.mark.parametrize("way", WAYS)
def test_an_extra_column_is_a_fault_of_the_rows_that_have_a_value_in_it(lake: Lake, tmp_path: Path, way: str) -> None:
    table(lake, schema={"id": "long"})
    data = pa.table({"id": [1, 2, 3], "colour": [None, "red", None]})
    result = lake.append(NAME, forms(data, tmp_path)[way])
    assert (result.rows, result.dead_letters, ids(lake)) == (2, 1, [1, 3])
    (letter,) = letters(lake)
    assert letter.envelope["reason"] == "unknown_column" and str(letter.record_data["id"]) == "2"
    assert 2 in (letter.envelope.get("row"), letter.envelope.get("line"), letter.envelope.get("item"))


@pytest.mark.parametrize("way", WAYS)
def test_a_wider_type_is_a_fault_of_the_rows_whose_values_do_not_fit(lake: Lake, tmp_path: Path, way: str) -> None:
    table(lake, schema={"id": "int", "share": "float"})
    data = pa.table({"id": [1, 2**40, 3], "share": [0.5, 1.0, 1e39]})
    result = lake.append(NAME, forms(data, tmp_path)[way])
    assert (result.rows, result.dead_letters, ids(lake)) == (1, 2, [1])
    assert [letter.envelope["reason"] for letter in letters(lake)] == ["wrong_type"] * 2
    assert all("too large" in str(x.error_message) or "out of range" in str(x.error_message) for x in letters(lake))


@pytest.mark.parametrize("way", WAYS)
def test_without_the_policy_an_extra_column_and_a_value_that_does_not_fit_refuse_the_write(
    lake: Lake, tmp_path: Path, way: str
) -> None:
    make_table(lake, NAME, schema={"id": "int"})
    for data, reason in (
        (pa.table({"id": [1, 2], "colour": [None, "red"]}), "unknown_column"),
        (pa.table({"id": [1, 2**40]}), "wrong_type"),
    ):
        with pytest.raises(FileRefused) as refused:
            lake.append(NAME, forms(data, tmp_path)[way])
        assert refused.value.reason == reason
        if reason == "wrong_type":
            assert re.search(r"(row|line|item) 2: column 'id': '1099511627776'", str(refused.value))
    assert ids(lake) == []


@pytest.mark.parametrize("way", ["arrow", "frame", "parquet"])
@pytest.mark.parametrize("policy", ["add", "widen"])
def test_a_table_that_evolves_grows_before_its_rows_are_judged(
    lake: Lake, tmp_path: Path, way: str, policy: str
) -> None:
    table(lake, {"lakeward.evolve": policy}, schema={"id": "int", "share": "float"})
    lake.append(NAME, [{"id": 1, "share": 0.5}])
    data = pa.table({"id": [2, 2**40], "share": [0.5, 1e39], "colour": [None, "red"], "size": [[1], None]})
    result = lake.append(
        NAME, forms(data.drop(["size"]), tmp_path)[way] if way == "parquet" else forms(data, tmp_path)[way]
    )
    types = {field["name"]: field["type"] for field in lake.metadata_versions(NAME)[-1].schema["fields"]}
    grown = policy == "widen"
    assert (types["id"], types["share"], types["colour"]) == (
        ("long", "double", "string") if grown else ("int", "float", "string")
    )
    assert (result.rows, result.dead_letters) == ((2, 0) if grown else (1, 1))
    assert ids(lake) == ([1, 2, 2**40] if grown else [1, 2])
    assert_nothing_left_over(lake, NAME)


def test_writers_that_grow_a_table_at_once_all_get_their_rows_in(lake: Lake) -> None:
    table(lake, {"lakeward.evolve": "add"}, schema={"id": "long"})
    failures: list[BaseException] = []

    def send(number: int) -> None:
        try:
            lake.append(NAME, pa.table({"id": [number], f"c{number % 3}": ["x"]}))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and ids(lake) == list(range(6))
    assert {f"c{number}" for number in range(3)} < set(lake.scan(NAME).schema.names)


DAMAGED = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")]
)


@pytest.mark.parametrize("partition_by", [[], ["name"]])
@pytest.mark.parametrize("own_form", [True, False])
@pytest.mark.parametrize("policy", ["refuse", "dead-letter"])
def test_texts_that_are_no_utf8_enter_no_table(
    lake: Lake, tmp_path: Path, partition_by: list[str], own_form: bool, policy: str
) -> None:
    table(lake, {"lakeward.invalid-rows": policy}, schema={"id": "long", "name": "string"}, partition_by=partition_by)
    if own_form:  # such a file is copied as it is, unless it is found
        lake.append(NAME, [{"id": 0, "name": "a"}])
        own = pq.read_schema(lake.files(NAME)[0].file_path.removeprefix("file://"))
        written = pa.table([pa.array([1, 2, 3]), DAMAGED], schema=own)
    else:
        written = pa.table({"id": [1, 2, 3], "name": DAMAGED})
    path = tmp_path / "a.parquet"
    pq.write_table(written, path, compression="zstd", store_schema=False)
    before = ids(lake)
    if policy == "refuse":
        with pytest.raises(FileRefused, match="'name' is damaged") as refused:
            lake.append(NAME, path)
        assert refused.value.reason == "wrong_type" and ids(lake) == before
    else:
        assert lake.append(NAME, path).dead_letters == 1
        assert ids(lake) == [*before, 1, 3]
        assert letters(lake)[0].record_data == {"id": 2, "name": b"\xff"}
    assert_nothing_left_over(lake, NAME)


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_rows_for_a_table_of_either_format_are_taken_apart(lake: Lake, format: str) -> None:
    table(lake, format=format)
    assert lake.append(NAME, [{"id": 1}, {"id": None}]).dead_letters == 1
    assert ids(lake) == [1]


def test_a_replaced_partition_keeps_its_bad_rows_as_letters(lake: Lake) -> None:
    table(lake, partition_by=["name"])
    lake.append(NAME, [{"id": 1, "name": "a"}])
    rows = [{"id": 2, "name": "a"}, {"id": None, "name": "a"}]
    assert StorageManager(lake).insert_partition("sales", "orders", {"name": "a"}, rows).dead_letters == 1
    assert ids(lake) == [2] and len(letters(lake)) == 1


# Together, or not at all --------------------------------------------------------------------------------------------------
def test_a_batch_seen_before_adds_no_letter_and_gets_the_first_answer(lake: Lake) -> None:
    table(lake)
    first = lake.append(NAME, [{"id": 1}, {"id": None}], batch=("s", "1"))
    again = lake.append(NAME, [{"id": 1}, {"id": None}], batch=("s", "1"))
    assert (first.dead_letters, again.dead_letters, again.replayed) == (1, 1, True)
    assert len(letters(lake)) == 1 and ids(lake) == [1]


def test_one_batch_from_many_threads_at_once_adds_its_letters_once(lake: Lake) -> None:
    table(lake)
    results = []

    def send() -> None:
        results.append(lake.append(NAME, [{"id": 1}, {"id": None}], batch=("s", "1")))

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.replayed for result in results) == [False, *[True] * 5]
    assert len(letters(lake)) == 1 and ids(lake) == [1]
    assert_nothing_left_over(lake, NAME)


def test_a_write_that_fails_at_its_commit_leaves_no_letter(lake: Lake) -> None:
    table(lake)
    lake.append(NAME, [{"id": 1}], batch=("s", "1", None, 10))
    with pytest.raises(BatchOutOfOrder):
        lake.append(NAME, [{"id": 2}, {"id": None}], batch=("s", "2", 99, 100))
    assert letters(lake) == [] and ids(lake) == [1]
    assert_nothing_left_over(lake, NAME)


def test_more_bad_rows_than_the_table_takes_refuse_the_write_and_say_which_rules_they_broke(lake: Lake) -> None:
    table(lake, {"lakeward.invalid-rows.max": "3"})
    rows: list[dict[str, Any]] = [{"id": "x"}, {"id": 1}, {"id": None}, {"id": "y"}]
    assert lake.append(NAME, rows).dead_letters == 3
    with pytest.raises(FileRefused) as refused:
        lake.append(NAME, [*rows, {"id": "z"}, {"id": "w"}])
    assert refused.value.reason == "wrong_type"
    assert "more than 3 rows do not fit (3 wrong_type, 1 null_in_required" in str(refused.value)
    assert len(letters(lake)) == 3 and ids(lake) == [1]
    assert_nothing_left_over(lake, NAME)


def test_the_most_is_over_all_files_of_a_write(lake: Lake, tmp_path: Path) -> None:
    table(lake, {"lakeward.invalid-rows.max": "1"})
    files = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for file in files:
        file.write_text('{"id": 1}\n{"id": null}\n')
    with pytest.raises(FileRefused, match="more than 1 rows"):
        lake.append(NAME, files)
    assert letters(lake) == []


def test_letters_name_the_run_of_their_write_which_counts_their_rows_as_processed(lake: Lake, tmp_path: Path) -> None:
    table(lake)
    (tmp_path / "one.jsonl").write_text('{"id": 1}\n{"id": null}\n')
    lake.append(NAME, tmp_path / "one.jsonl")
    with lake.writer(NAME) as writer:
        writer.write([{"id": 2}, {"id": 3}, {"id": None}])
    for letter, inserted in zip(letters(lake), (1, 2), strict=True):
        assert letter.sync_run_id is not None
        run = runs.get(lake.registry, letter.sync_run_id)
        assert (run.records_processed, run.records_inserted) == (inserted + 1, inserted)


def test_the_command_says_how_many_rows_became_dead_letters(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("create", NAME, "--schema", "id long")
    shell.run("alter", "set", NAME, "lakeward.invalid-rows=dead-letter")
    (tmp_path / "one.jsonl").write_text('{"id": 1}\n{"id": "x"}\n{"id": 3}\n')
    said = shell.json("append", NAME, str(tmp_path / "one.jsonl"))
    assert (said["rows"], said["dead_letters"]) == (2, 1)
    shown = shell.run("append", NAME, str(tmp_path / "one.jsonl"))
    assert re.search(r"dead letters\W+1\b", shown), shown
    assert shell.json("dlq", "show", "1")["record_data"] == {"id": "x"}


# The rolling writer -------------------------------------------------------------------------------------------------------
def test_a_rolling_writer_commits_bad_rows_with_its_file(lake: Lake) -> None:
    table(lake)
    with lake.writer(NAME) as writer:
        writer.write({"id": 1})
        writer.write([{"id": None}, {"id": 2}])
        assert letters(lake) == []
        result = writer.rotate()
        assert result is not None and (result.rows, result.dead_letters) == (2, 1)
        writer.write({"id": "x"})
    assert (writer.committed_rows, writer.dead_letters) == (2, 2)
    assert [x.record_data for x in letters(lake)] == [{"id": None}, {"id": "x"}]
    assert ids(lake) == [1, 2]


def test_a_rolling_writer_rotates_when_it_holds_as_many_bad_rows_as_a_write_may_have(lake: Lake) -> None:
    table(lake, {"lakeward.invalid-rows.max": "2"})
    with lake.writer(NAME) as writer:
        for _ in range(5):
            writer.write({"id": None})
        assert len(letters(lake)) == 4
        with pytest.raises(FileRefused, match="more than 2 rows"):
            writer.write([{"id": None}] * 3)
    assert len(letters(lake)) == 5


def test_no_file_of_a_rolling_writer_has_more_bad_rows_than_a_write_may_have(lake: Lake) -> None:
    table(lake, {"lakeward.invalid-rows.max": "3"})
    with lake.writer(NAME) as writer:
        writer.write([{"id": 1}, {"id": None}, {"id": "x"}])
        lake.rename_column(NAME, "name", "title")  # rows are of the file that they were checked for
        writer.write([{"id": 2, "name": "n"}, {"id": None}, {"id": "y"}])
        assert [commit.dead_letters for commit in writer.commits] == [2]
        writer.write({"id": None})
        assert [commit.dead_letters for commit in writer.commits] == [2, 3]
    assert ids(lake) == [1, 2]
    assert lake.scan(NAME).read_all().sort_by("id")["title"].to_pylist() == [None, "n"]


def test_a_rolling_writer_whose_block_fails_leaves_no_letter(lake: Lake) -> None:
    table(lake)
    with pytest.raises(KeyError), lake.writer(NAME) as writer:
        writer.write([{"id": 1}, {"id": None}])
        raise KeyError
    assert letters(lake) == [] and ids(lake) == []


# Secrets and the way back -------------------------------------------------------------------------------------------------
def test_columns_that_the_table_names_are_hidden_in_record_and_message(lake: Lake, made_url: str) -> None:
    table(lake, {"lakeward.redact-columns": "name, raw"})
    secret = "hunter2-" * 30  # longer than what a message quotes
    lake.append(NAME, [{"id": None, "name": secret}, {"id": 1, "raw": secret}, {"id": "x" + secret[:4], "name": "x"}])
    found = letters(lake)
    assert [letter.record_data.get("name") for letter in found] == ["***", None, "***"]
    assert "hunter2" not in repr(found[:2])
    assert found[1].error_message == "wrong_type: column 'raw', whose values are not shown"


@pytest.mark.parametrize("policy", ["refuse", "dead-letter"])
def test_a_write_that_is_refused_tells_no_value_of_these_columns(lake: Lake, tmp_path: Path, policy: str) -> None:
    properties = {"lakeward.invalid-rows": policy, "lakeward.invalid-rows.max": "1", "lakeward.redact-columns": "id"}
    table(lake, properties)
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "hunter2"}\n{"id": "hunter2"}\n')
    with pytest.raises(FileRefused, match="'id', whose values are not shown") as refused:
        lake.append(NAME, file)
    assert refused.value.reason == "wrong_type"
    told = repr([*rows_of(lake.registry, "error_log"), *rows_of(lake.registry, "sync_runs")])
    assert "values are not shown" in told and "hunter2" not in told


def test_repaired_records_are_appended_and_their_letters_resolved(lake: Lake) -> None:
    table(lake)
    lake.append(NAME, [{"id": "no. 7", "price": Decimal("1.10")}, {"id": 1}])
    with MetadataManager(lake) as manager:
        for letter in manager.claim_dead_letters("repair"):
            row = letter.record_data | {"id": int(letter.record_data["id"].removeprefix("no. "))}
            lake.append(NAME, [row], batch=("dead letters", str(letter.id)))
            manager.resolve_dead_letter(letter.id, "id was a text", letter.claim)
    assert ids(lake) == [1, 7]
    assert [x.status for x in letters(lake)] == [DeadLetterStatus.RESOLVED]


def test_a_record_that_still_does_not_fit_is_the_same_letter_with_a_higher_count(lake: Lake) -> None:
    table(lake)
    lake.append(NAME, [{"id": "seven"}])
    with MetadataManager(lake) as manager:
        (letter,) = manager.claim_dead_letters("repair")
        assert lake.append(NAME, [{"id": "Seven"}], repairs=letter).dead_letters == 1
        (again,) = letters(lake)
        assert (again.id, again.status, again.error_count) == (letter.id, DeadLetterStatus.PENDING, 2)
        assert (again.record_data, again.claimed_by) == ({"id": "Seven"}, None)
        (letter,) = manager.claim_dead_letters("repair")
        assert lake.append(NAME, [{"id": 7}], repairs=letter).rows == 1
    (done,) = letters(lake)
    assert (done.status, done.error_count, done.resolution) == (DeadLetterStatus.RESOLVED, 2, dead_letters.REPAIRED)
    assert ids(lake) == [7]
    assert_nothing_left_over(lake, NAME)


def test_a_letter_that_nobody_has_is_repaired_by_its_number_and_more_broken_rows_are_letters_of_their_own(
    lake: Lake,
) -> None:
    table(lake)
    lake.append(NAME, [{"id": "one and two"}])
    (letter,) = letters(lake)
    assert lake.append(NAME, [{"id": "one"}, {"id": 2}, {"id": "two"}], repairs=letter.id).dead_letters == 2
    assert [(x.error_count, x.record_data) for x in letters(lake)] == [(2, {"id": "one"}), (1, {"id": "two"})]


def test_a_letter_that_cannot_be_repaired_by_this_write_leaves_nothing_written(lake: Lake) -> None:
    table(lake)
    make_table(lake, "sales.other", schema=SCHEMA)
    lake.append(NAME, [{"id": "a"}, {"id": "b"}])
    with MetadataManager(lake) as manager:
        claimed, ended = manager.claim_dead_letters("repair")
        manager.discard_dead_letter(ended.id, claim=ended.claim)
        wrong: list[tuple[Any, str, type[Exception]]] = [
            (claimed.id, NAME, StatusConflict),  # claimed, and not by us
            (msgspec.structs.replace(claimed, claim=claimed.claim - 1), NAME, StatusConflict),
            (ended.id, NAME, StatusConflict),
            (claimed, "sales.other", InvalidInput),
            (99, NAME, DeadLetterNotFound),
            ("1", NAME, InvalidInput),
        ]
        for letter, name, error in wrong:
            with pytest.raises(error):
                lake.append(name, [{"id": 1}], repairs=letter)
    assert ids(lake) == [] and len(letters(lake)) == 2
    assert_nothing_left_over(lake, NAME)
    assert objects(lake, lake.table(NAME)) == set()


def test_each_letter_of_a_batch_is_found_again_past_the_ninth_too(lake: Lake) -> None:
    table(lake)
    for count in (11, 2):
        lake.append(NAME, [{"id": None}] * count, batch=("s", "1"))
    lake.append(NAME, [{"id": 1}], batch=("s", "1"))
    assert [each.status for each in letters(lake)] == [DeadLetterStatus.RESOLVED] * 11


def test_a_batch_none_of_whose_rows_fitted_has_not_spent_its_key(lake: Lake) -> None:
    table(lake)
    bad = [{"id": "a"}, {"id": "b"}]
    for tries in (1, 2, 3):
        result = lake.append(NAME, bad, batch=("s", "1"))
        assert (result.rows, result.dead_letters, result.replayed) == (0, 2, False)
        assert [(x.record_data, x.error_count) for x in letters(lake)] == [(row, tries) for row in bad]
    result = lake.append(NAME, [{"id": 1}, {"id": "B"}], batch=("s", "1"))
    assert (result.rows, result.dead_letters, result.replayed) == (1, 1, False)
    first, second = letters(lake)
    assert (first.record_data, first.error_count, first.status) == ({"id": "B"}, 4, DeadLetterStatus.PENDING)
    assert (second.status, second.resolution) == (DeadLetterStatus.RESOLVED, dead_letters.TAKEN)
    replay = lake.append(NAME, [{"id": 1}, {"id": 2}], batch=("s", "1"))
    assert (replay.replayed, replay.rows, replay.dead_letters) == (True, 1, 1)
    assert ids(lake) == [1] and len(letters(lake)) == 2
    assert_nothing_left_over(lake, NAME)


@pytest.mark.on("sqlite", "postgresql")
def test_the_last_broken_row_of_a_batch_that_is_mended_resolves_its_letters(lake: Lake) -> None:
    table(lake)
    lake.append(NAME, [{"id": "a"}], batch=("s", "1"))
    lake.append(NAME, [{"id": "a"}], batch=("s", "other"))
    assert lake.append(NAME, [{"id": 1}], batch=("s", "1")).rows == 1
    assert [x.status for x in letters(lake)] == [DeadLetterStatus.RESOLVED, DeadLetterStatus.PENDING]


def test_a_batch_that_says_what_it_consumed_is_spent_so_that_its_stream_goes_on(lake: Lake) -> None:
    table(lake)
    lake.append(NAME, [{"id": "a"}], batch=("s", "1", None, 5))
    assert lake.append(NAME, [{"id": 1}], batch=("s", "1", None, 5)).replayed
    assert lake.append(NAME, [{"id": 2}], batch=("s", "2", 5, 9)).rows == 1
    assert len(letters(lake)) == 1 and ids(lake) == [2]


@pytest.mark.parametrize("kind", ["rows", "file"])
def test_a_batch_that_is_refused_at_every_pass_is_one_open_error_that_counts(
    lake: Lake, tmp_path: Path, kind: str
) -> None:
    make_table(lake, NAME, schema=SCHEMA)
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "x"}\n')
    data: Any = [{"id": "x"}] if kind == "rows" else path
    for _ in range(3):
        with pytest.raises(FileRefused):
            lake.append(NAME, data, batch=("cron", "a"))
    (error,) = error_log.list_errors(lake.registry)
    failed = runs.list_runs(lake.registry)
    assert (error.occurrences, error.sync_run_id, len(failed)) == (3, failed[0].id, 3)
    assert error.last_occurred_at is not None and error.last_occurred_at >= error.occurred_at
    with pytest.raises(FileRefused):
        lake.append(NAME, data, batch=("cron", "b"))
    with pytest.raises(FileRefused):
        lake.append(NAME, data)
    error_log.end(lake.registry, ErrorStatus.RESOLVED, error.id)
    with pytest.raises(FileRefused):
        lake.append(NAME, data, batch=("cron", "a"))
    found = error_log.list_errors(lake.registry)
    assert [(x.occurrences, x.status.value) for x in found] == [(1, "open")] * 3 + [(3, "resolved")]


@pytest.mark.parametrize("batch", [None, ("cron", "a")])
def test_a_file_that_goes_in_at_last_resolves_the_error_of_its_refusals(
    lake: Lake, tmp_path: Path, batch: tuple[str, str] | None
) -> None:
    make_table(lake, NAME, schema=SCHEMA)
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for each in (path, other):
        each.write_text('{"id": "x"}\n')
    for _ in range(2):
        with pytest.raises(FileRefused):
            lake.append(NAME, path, batch=batch)
    with pytest.raises(FileRefused):
        lake.append(NAME, other)
    path.write_text('{"id": 1}\n')
    assert lake.append(NAME, path, batch=batch).rows == 1
    found = {x.resolution: (x.occurrences, x.status.value) for x in error_log.list_errors(lake.registry)}
    assert found == {None: (1, "open"), "it succeeded later": (2, "resolved")}


def test_the_command_repairs_a_letter_and_fails_past_a_number_of_dead_letters(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("create", NAME, "--schema", "id long")
    shell.run("alter", "set", NAME, "lakeward.invalid-rows=dead-letter")
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"id": 1}\n{"id": "x"}\n')
    assert shell.json("append", NAME, str(lines), "--max-dead-letters", "0", exit_code=1)["dead_letters"] == 1
    assert shell.json("append", NAME, str(lines), "--max-dead-letters", "1")["rows"] == 1
    lines.write_text('{"id": 2}\n')
    shell.run("append", NAME, str(lines), "--repairs", "1")
    assert shell.json("dlq", "counts")["resolved"] == 1


def test_strange_values_of_arrow_come_back_as_they_can(lake: Lake) -> None:
    make_table(lake, NAME, schema={"id": "long not null", "at": "timestamp", "d": "date"}, properties=POLICY)
    data = pa.table(
        {
            "id": pa.array([None, None], pa.int64()),
            "at": pa.array([2**62, 0], pa.timestamp("us")),  # past the year 9999
            "d": pa.array([-1_000_000, 0], pa.date32()),  # before the year 1
        }
    )
    assert lake.append(NAME, data).dead_letters == 2
    first, second = (letter.record_data for letter in letters(lake))
    assert isinstance(first["at"], str) and isinstance(first["d"], str)
    assert second == {"id": None, "at": datetime(1970, 1, 1), "d": date(1970, 1, 1)}

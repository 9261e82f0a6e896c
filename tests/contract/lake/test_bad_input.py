"""What does not fit is refused by name, and leaves neither a file nor a row behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeward
from lakeward import Lake
from lakeward.errors import (
    ColumnNotFound,
    FileRefused,
    InvalidInput,
    InvalidName,
    InvalidSchema,
    NamespaceNotEmpty,
    RegistryUnavailable,
    StorageFull,
    TableNotFound,
    WarehouseNotWritable,
)
from lakeward.log.records import TopicConfig
from tests.support.descriptors import open_below
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake
from tests.support.registries import changes, last_sequence, rows_of

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        yield opened


@contextmanager
def nothing_happens(lake: Lake, name: Any = NAME) -> Iterator[None]:
    """The block changes neither the registry nor the files."""
    table = lake.table(name)
    before, start = objects(lake, table), last_sequence(lake.registry)
    yield
    assert changes(lake.registry, start) == []
    assert objects(lake, table) == before
    assert rows_of(lake.registry, "pending_writes") == []
    assert lake.table(name) == table


# One registry serves all cases of a claim: opening one takes longer than a case.
def test_a_wrong_name_is_refused_by_every_call(lake: Lake) -> None:
    calls: list[Callable[[Any], Any]] = [
        lake.table,
        lake.drop_table,
        lake.files,
        lake.flush,
        lake.snapshots,
        lake.metadata,
        lake.scan,
        lake.writer,
        lambda name: make_table(lake, name),
        lambda name: lake.append(name, ROWS),
    ]
    names: list[Any] = [
        "",
        "orders",
        "a..b",
        ".",
        "a.b\n",
        ("a", "b\0"),
        ("a\x1f", "b"),
        ("", "b"),
        "a." + "x" * 256,
        5,
    ]
    for name, call in itertools.product(names, calls):
        with pytest.raises(InvalidName):
            call(name)
    assert lake.namespaces() == []


def test_an_unknown_table_is_named_by_every_call(lake: Lake, tmp_path: Path) -> None:
    for act in (
        lake.table,
        lake.drop_table,
        lake.files,
        lake.flush,
        lake.snapshots,
        lake.scan,
        lake.writer,
        lake.audit,
    ):
        with pytest.raises(TableNotFound, match=r"sales\.none"):
            act("sales.none")
    with pytest.raises(TableNotFound):
        lake.append("sales.none", ROWS, batch=("s", "1"))
    with pytest.raises(TableNotFound):
        lake.append("sales.none", tmp_path / "x.parquet")
    assert rows_of(lake.registry, "pending_writes") == []


def test_a_wrong_schema_is_refused_and_makes_no_table(lake: Lake) -> None:
    wrong: list[Any] = [
        {}, {"a": "enum"}, {"": "int"}, {"a": "int", "A": "int"}, {"a": "decimal(39,2)"}, {"a": "decimal(5,6)"},
        {"a": "map<int>"}, pa.schema([("a", pa.int32()), ("a", pa.int32())]), pa.schema([("a", pa.timestamp("ns"))]),
    ]  # fmt: skip
    for schema in wrong:
        with pytest.raises(InvalidSchema):
            make_table(lake, NAME, schema=schema)
    for schema in ("id long", 5, None):
        with pytest.raises(InvalidInput):
            make_table(lake, NAME, schema=schema)
    assert lake.tables() == []


def test_a_wrong_partition_is_refused_and_makes_no_table(lake: Lake) -> None:
    for wrong in (["nome"], ["month(name)"], ["bucket(0, id)"], ["wat(id)"], [""], ["id", "id"]):
        with pytest.raises((InvalidSchema, ColumnNotFound)):
            make_table(lake, NAME, partition_by=wrong)
    assert lake.tables() == []


WRONG_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("unknown_column", {"id": 1, "nome": "x"}),
    ("unknown_column", {"ID": 1}),
    ("null_in_required", {"name": "x"}),  # other rows of the call have the column
    ("null_in_required", {"id": None}),
    ("wrong_type", {"id": "one"}),
    ("wrong_type", {"id": 2**63}),
    ("wrong_type", {"id": 1.5}),
    ("wrong_type", {"id": 1, "small": 2**31}),
    ("wrong_type", {"id": 1, "name": 5}),
    ("wrong_type", {"id": 1, "name": "\ud800"}),
    ("wrong_type", {"id": 1, "price": Decimal("1234567.89")}),
    ("wrong_type", {"id": 1, "price": Decimal("1.234")}),
    ("wrong_type", {"id": 1, "day": datetime(2026, 1, 1, 12)}),
    ("wrong_type", {"id": 1, "at": date(2026, 1, 1)}),
    ("wrong_type", {"id": 1, "at": datetime(2026, 1, 1)}),
    ("wrong_type", {"id": 1, "flag": "yes"}),
    ("wrong_type", {"id": 1, "raw": "text"}),
    ("wrong_type", {"id": 1, "tags": "abc"}),
    ("wrong_type", {"id": 1, "tags": [1, "x"]}),
    ("wrong_type", {"id": 1, "inner": {"a": "x"}}),
    ("unknown_column", {"id": 1, "inner": {"b": 1}}),
]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_row_that_does_not_fit_refuses_the_whole_append(lake: Lake, format: str) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("small", pa.int32()),
         ("price", pa.decimal128(8, 2)), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("flag", pa.bool_()),
         ("raw", pa.binary()), ("tags", pa.list_(pa.int32())), ("inner", pa.struct([("a", pa.int32())]))]
    )  # fmt: skip
    make_table(lake, NAME, schema=schema, format=format)
    for reason, row in WRONG_ROWS:
        with nothing_happens(lake), pytest.raises(FileRefused) as refused:
            lake.append(NAME, [{"id": 1, "name": "fits"}, row], batch=("s", "1"))
        assert refused.value.reason == reason, row
    assert rows_of(lake.registry, "applied_batches") == []


def test_a_value_that_does_not_fit_late_in_a_stream_takes_the_files_before_it_along(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"], properties={"write.target-file-size-bytes": "1"})

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(25_000):
            yield {"id": number, "name": f"p{number % 3}"}
        yield {"id": "wrong", "name": "p0"}

    with nothing_happens(lake), pytest.raises(FileRefused, match="'wrong'"):
        lake.append(NAME, rows())


def test_an_error_of_the_data_s_own_passes_and_leaves_nothing(lake: Lake) -> None:
    make_table(lake, NAME)

    def rows() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise ZeroDivisionError

    with nothing_happens(lake), pytest.raises(ZeroDivisionError):
        lake.append(NAME, rows(), batch=("s", "1"))
    assert lake.append(NAME, ROWS, batch=("s", "1")).rows == len(ROWS)


def test_a_partition_s_column_must_be_there(lake: Lake) -> None:
    make_table(lake, NAME, schema={"id": "long", "name": "string", "ts": "timestamp"}, partition_by=["day(ts)", "name"])
    one, two = {"id": [1]}, {"id": [1], "ts": [None]}
    for data in (one, two, pa.table(one), pa.table(two)):
        with nothing_happens(lake), pytest.raises(FileRefused, match="partitions are made from it") as refused:
            lake.append(NAME, data)
        assert refused.value.reason == "missing_column"


def test_data_of_no_known_kind_is_refused(lake: Lake) -> None:
    make_table(lake, NAME)
    for data in (None, 5, "text", b"bytes", object(), [1, 2], [["a"]], {"id": [1, 2], "name": ["a"]}):
        with nothing_happens(lake), pytest.raises(InvalidInput):
            lake.append(NAME, data)


def test_a_column_that_is_there_twice_is_refused(lake: Lake) -> None:
    make_table(lake, NAME)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with nothing_happens(lake), pytest.raises(InvalidInput, match="twice"):
        lake.append(NAME, twice)


def test_files_that_do_not_fit_are_named_with_their_reason(lake: Lake, tmp_path: Path) -> None:
    make_table(lake, NAME)
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), good)
    files = {
        "truncated": good.read_bytes()[:-6],
        "wrong_format": b"id,name\n1,a\n" * 10,
    }
    tables = {
        "wrong_type": pa.table({"id": pa.array([1], pa.timestamp("ns"))}),
        "unknown_column": pa.table({"nome": ["a"]}),
    }
    cases = [("not_found", tmp_path / "none.parquet")]
    for reason, content in files.items():
        (tmp_path / f"{reason}.parquet").write_bytes(content)
        cases.append((reason, tmp_path / f"{reason}.parquet"))
    for reason, table in tables.items():
        pq.write_table(table, tmp_path / f"{reason}.parquet")
        cases.append((reason, tmp_path / f"{reason}.parquet"))
    for reason, path in cases:
        with nothing_happens(lake), pytest.raises(FileRefused) as refused:
            lake.append(NAME, [good, path], batch=("files", reason))
        assert refused.value.reason == reason, path
        assert path.name in str(refused.value)


def test_a_file_with_a_damaged_page_is_refused_though_its_footer_fits(lake: Lake, tmp_path: Path) -> None:
    """It would be copied as it is, and make the table unreadable."""
    make_table(lake, NAME)
    lake.append(NAME, [{"id": i, "name": f"name {i}"} for i in range(1000)])
    (own,) = lake.files(NAME)
    data = bytearray(lake.registry.engine(own.file_path).read(own.file_path))
    data[40:80] = bytes(byte ^ 0xFF for byte in data[40:80])
    path = tmp_path / "damaged.parquet"
    path.write_bytes(data)
    with nothing_happens(lake), pytest.raises(FileRefused) as refused:
        lake.append(NAME, path)
    assert refused.value.reason == "unreadable"
    assert lake.scan(NAME).read_all().num_rows == 1000


def test_a_file_with_one_field_id_twice_is_refused(lake: Lake, tmp_path: Path) -> None:
    make_table(lake, NAME)
    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": "1"}) for name in ("id", "other")]
    path = tmp_path / "twice.parquet"
    pq.write_table(pa.table([[1], [5]], schema=pa.schema(fields)), path)
    with nothing_happens(lake), pytest.raises(FileRefused, match="field id 1"):
        lake.append(NAME, path)


def test_a_pipe_and_json_without_a_bottom_are_refused(lake: Lake, tmp_path: Path) -> None:
    make_table(lake, NAME)
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "deep.jsonl").write_text('{"id": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    for name in ("pipe.jsonl", "deep.jsonl"):
        with nothing_happens(lake), pytest.raises(FileRefused):
            lake.append(NAME, tmp_path / name)


def test_a_property_whose_value_would_make_later_appends_fail_is_refused_when_it_is_set(lake: Lake) -> None:
    make_table(lake, NAME)
    refused = {
        "write.target-file-size-bytes": "large",
        "write.parquet.compression-level": "23",
        "write.parquet.compression-codec": "nonsense",
        "history.expire.min-snapshots-to-keep": str(2**40),
        "history.expire.max-snapshot-age-ms": "99999999999999999999",
        "lakeward.footers": "maybe",
        "lakeward.unheard-of": "1",
        "format-version": "1",
    }
    for name, value in refused.items():
        with nothing_happens(lake), pytest.raises(InvalidInput, match=name):
            lake.set_properties(NAME, {name: value})
        with pytest.raises(InvalidInput, match=name):
            make_table(lake, "sales.other", properties={name: value})
    lake.set_properties(NAME, {"write.parquet.compression-level": "19"})
    assert lake.append(NAME, ROWS).rows == len(ROWS)
    with pytest.raises(InvalidInput, match="snappy: it has no levels"):
        make_table(lake, "sales.other", properties={"write.parquet.compression-level": "1"}, compression="snappy")


def test_a_topics_config_that_would_make_later_appends_fail_is_refused_when_it_is_set(lake: Lake) -> None:
    store = lakeward.MetadataStore(lake)
    wrong = {"segment.bytes": "1 GB", "compression.type": "producer", "retention.strict": "yes"}
    for name, value in wrong.items():
        with pytest.raises(InvalidInput, match=f"{name}='{value}'"):
            store.create_topic(TopicConfig("t", config={name: value}))
    store.create_topic(TopicConfig("t", config={"segment.bytes": "1000", "owner": "ann"}))
    for name, value in wrong.items():
        with pytest.raises(InvalidInput, match=name):
            store.update_topic_config("t", {name: value})
    assert store.update_topic_config("t", {"segment.bytes": "2000"}).config == {"segment.bytes": "2000", "owner": "ann"}


@pytest.mark.parametrize("properties", [{"a": 5}, {"a": "\ud800"}, {"a": "x\0"}, {"\0": "a"}, {"s3.secret": "x"}])
def test_a_property_is_a_text_that_both_databases_keep(lake: Lake, properties: dict[str, Any]) -> None:
    make_table(lake, NAME)
    with pytest.raises(InvalidInput, match="property"):
        lake.set_properties(NAME, properties)
    with pytest.raises(InvalidInput, match="property"):
        make_table(lake, "sales.other", properties=properties)
    with pytest.raises(InvalidSchema, match="partition field 5"):
        make_table(lake, "sales.other", partition_by=[5])


def test_a_namespace_with_tables_is_not_dropped(lake: Lake) -> None:
    make_table(lake, NAME)
    with pytest.raises(NamespaceNotEmpty):
        lake.drop_namespace("sales")


# The machine is against us ------------------------------------------------------------------------------------------------
def test_a_table_s_folder_that_cannot_be_written_is_named_and_the_intent_goes(lake: Lake) -> None:
    """The user of these tests may be root, who may write anywhere: so a file stands in place of the folder."""
    table = make_table(lake, NAME)
    folder = Path(table.location.removeprefix("file://"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("not a folder")
    with pytest.raises(WarehouseNotWritable, match="a file stands where a folder of the warehouse should"):
        lake.append(NAME, ROWS)
    folder.unlink()
    lake.recover()
    lake.recover()
    assert rows_of(lake.registry, "pending_writes") == rows_of(lake.registry, "table_files") == []
    assert lake.append(NAME, ROWS).rows == len(ROWS)
    assert_nothing_left_over(lake, NAME)


LIMIT = 4 << 20  # bytes


@contextmanager
def little_room(folder: Path) -> Iterator[None]:
    """A file system of LIMIT bytes at `folder` where one may be mounted; else no file of ours may grow past LIMIT."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={LIMIT}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            yield
        finally:
            subprocess.run(["umount", str(folder)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("batches", [1, 300])
def test_a_full_warehouse_is_named_and_what_was_there_stays(made_url: str, tmp_path: Path, batches: int) -> None:
    noise = np.random.default_rng(1).bytes(2 * LIMIT)
    part = 2 * LIMIT // 256
    rows = pa.table({"id": range(256), "raw": [noise[i * part : (i + 1) * part] for i in range(256)]})
    with little_room(tmp_path / "warehouse"), open_lake(made_url, tmp_path, durable=False) as lake:
        make_table(lake, NAME, schema={"id": "long", "raw": "binary"})
        lake.append(NAME, rows.slice(0, 10))
        with nothing_happens(lake), pytest.raises(StorageFull, match="free space or raise the quota"):
            lake.append(NAME, rows.to_reader(max_chunksize=256 // batches or 1))
        lake.append(NAME, rows.slice(0, 10))
        assert lake.scan(NAME).read_all().num_rows == 20
        assert_nothing_left_over(lake, NAME)


def test_a_full_registry_is_named_nothing_is_registered_and_nothing_stays_open(tmp_path: Path) -> None:
    """SQLite. Each append has a little less room than the one before, down to none for the first byte of a transaction."""
    folder = tmp_path / "registry"
    with little_room(folder):
        lake = open_lake(f"sqlite:///{folder / 'registry.db'}", tmp_path, durable=False)
        make_table(lake, NAME)
        filler, written, refused = (folder / "filler").open("wb", buffering=0), 0, []
        free = LIMIT if not os.path.ismount(folder) else os.statvfs(folder).f_bavail * 4096
        with contextlib.suppress(OSError):
            filler.write(bytes(free - 600_000))
        for _ in range(150):
            try:
                lake.append(NAME, ROWS)
                written += 1
            except RegistryUnavailable as error:
                refused.append(error.code)
        assert written
        assert set(refused) == ({"registry_full"} if os.path.ismount(folder) else {"registry_unavailable"})
        assert lake.scan(NAME).read_all().num_rows == written * len(ROWS)
        filler.truncate(0)
        filler.close()
        if os.path.ismount(folder):
            lake.append(NAME, ROWS)
            assert lake.scan(NAME).read_all().num_rows == (written + 1) * len(ROWS)
        lake.close()
        assert open_below(folder) == []


def test_a_registry_that_is_not_reachable_is_said_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnavailable, match="does not answer") as refused:
        lakeward.connect("postgresql://me:SECRET@127.0.0.1:1/lake", tmp_path / "warehouse")
    assert "check that it runs and that the address is right" in str(refused.value)
    error: BaseException | None = refused.value
    while error is not None:
        assert "SECRET" not in str(error)
        error = error.__cause__ or error.__context__
    assert not (tmp_path / "warehouse").exists()


def test_a_text_is_one_value_and_no_column_of_letters(lake: Lake) -> None:
    make_table(lake, NAME, schema={"s": "string"})
    for wrong in ({"s": "abc"}, {"s": b"abc"}, {"s": {"a": 1}}):
        with nothing_happens(lake), pytest.raises(InvalidInput, match="give one row as"):
            lake.append(NAME, wrong)


def test_bytes_that_are_no_text_are_refused(lake: Lake) -> None:
    make_table(lake, NAME)
    broken = pa.array([b"fine", b"\xff\xfe"]).view(pa.string())
    for data in (pa.table({"id": [1, 2], "name": broken}), pa.table({"name": broken.cast(pa.large_string())})):
        with nothing_happens(lake), pytest.raises(FileRefused) as refused:
            lake.append(NAME, data)
        assert refused.value.reason == "wrong_type"


def test_keys_that_no_index_holds_are_refused_at_once(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    with nothing_happens(lake), pytest.raises(FileRefused, match="longer than 2,500 bytes"):
        lake.append(NAME, [{"id": 1, "name": "x" * 5_000}])
    with nothing_happens(lake), pytest.raises(InvalidInput, match="texts of 1 to 1000 bytes"):
        lake.append(NAME, ROWS, batch=("s", "x" * 10_000))
    longest = [{"id": 1, "name": "ü" * 1_200}]
    assert lake.append(NAME, longest, batch=("ü" * 500, "x" * 1_000)).rows == 1
    assert lake.append(NAME, longest, batch=("ü" * 500, "x" * 1_000)).replayed

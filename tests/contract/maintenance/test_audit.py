"""The audit sees each kind of disagreement between the registry and the files, and none where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lakeward import Lake
from lakeward.storage.locations import local_path
from tests.support.lakes import ROWS, make_table, open_lake

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def change(lake: Lake, statement: str) -> None:
    with lake.registry.database.transaction() as connection:
        connection.exec_driver_sql(statement)


def kinds(lake: Lake) -> set[str]:
    report = lake.audit(NAME)
    assert report.ok == (not {finding.kind for finding in report.findings} - {"unreferenced"})
    return {finding.kind for finding in report.findings}


def test_values_of_every_kind_raise_no_finding(lake: Lake) -> None:
    types = {"i": "int", "l": "long", "f": "float", "d": "double", "s": "string", "b": "binary", "m": "decimal(20,3)"}
    types |= {"n": "decimal(5,1)", "t": "timestamptz", "a": "date", "o": "boolean"}
    make_table(lake, NAME, schema=types)
    for sign in (1, -1):
        row: dict[str, Any] = {
            "i": sign,
            "l": sign << 40,
            "f": sign * 1.5,
            "d": float("nan"),
            "s": "é" * 30,
            "b": b"\xff" * 30,
        }
        row |= {"m": sign * Decimal("12345678901234567.125"), "n": sign * Decimal("1.5"), "o": sign > 0}
        row |= {"t": datetime(1969 + sign, 1, 1, tzinfo=UTC), "a": date(1970 + sign, 1, 1)}
        lake.append(NAME, [row, dict.fromkeys(types)])
    assert kinds(lake) == set()
    lake.widen_column(NAME, "i", "long")
    lake.append(NAME, [dict.fromkeys(types)])
    assert lake.audit(NAME).findings == []


def test_counters_that_differ_from_the_files_rows_are_found(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    change(lake, "UPDATE tables SET row_count = row_count + 1")
    assert kinds(lake) == {"counter"}


def test_statistics_of_a_partition_that_differ_from_its_files_are_found(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    change(lake, "UPDATE table_stats SET columns = '{}'")
    assert kinds(lake) == {"statistics"}


def test_statistics_of_a_file_that_its_footer_denies_are_found(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    # Upper bound of column 1: 1 instead of 5, base64 of 8 bytes little-endian, in both tables alike.
    for table, column in (("table_files", "statistics"), ("table_stats", "columns")):
        change(
            lake,
            f"UPDATE {table} SET {column} = CAST(replace(CAST({column} AS TEXT), 'BQAAAAAAAAA=', 'AQAAAAAAAAA=') AS "
            f"{'TEXT' if lake.registry.database.is_sqlite else 'JSON'})",
        )
    report = lake.audit(NAME)
    assert [finding.kind for finding in report.findings] == ["statistics"]
    assert "outside the registered bounds" in report.findings[0].detail


def test_files_that_are_gone_or_changed_are_found(lake: Lake) -> None:
    make_table(lake, NAME)
    for _ in range(3):
        lake.append(NAME, ROWS)
    first, second, third = (Path(local_path(file.file_path)) for file in lake.files(NAME))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(b"\x00" * third.stat().st_size)
    assert kinds(lake) == {"missing", "size", "unreadable"}
    assert {f.kind for f in lake.audit(NAME, checksums=True).findings} >= {"missing", "size", "unreadable", "checksum"}


def test_missing_checksums_are_filled_in_and_verified_the_next_time(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    (before,) = [file.checksum for file in lake.files(NAME)]
    change(lake, "UPDATE table_files SET checksum = NULL")
    filled = lake.audit(NAME, checksums=True)
    assert (filled.checksums_filled, filled.checksums_verified, filled.ok) == (1, 0, True)
    assert [file.checksum for file in lake.files(NAME)] == [before]
    again = lake.audit(NAME, checksums=True)
    assert (again.checksums_filled, again.checksums_verified, again.ok) == (0, 1, True)


def test_an_object_that_nothing_names_is_listed_and_left_alone(lake: Lake) -> None:
    table = make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    stray = Path(local_path(table.location)) / "data" / "stray.parquet"
    stray.write_bytes(b"PAR1")
    report = lake.audit(NAME)
    assert [(finding.kind, finding.what) for finding in report.findings] == [("unreferenced", f"file://{stray}")]
    assert report.ok
    lake.clean()
    assert stray.exists()


def test_metadata_that_is_damaged_is_a_finding(lake: Lake) -> None:
    make_table(lake, NAME)
    lake.append(NAME, ROWS)
    lake.flush(NAME)
    (snapshot,) = lake.snapshots(NAME)
    Path(local_path(snapshot.manifest_list)).write_bytes(b"no list")
    assert ("metadata", snapshot.manifest_list) in {(each.kind, each.what) for each in lake.audit(NAME).findings}

"""CSV files that end in the middle, and compressed ones of more than a block."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakeward.arrow.broken_rows import BrokenRows
from lakeward.arrow.imports import import_files
from lakeward.errors import FileRefused
from tests.unit.arrow.targets import target_for

SCHEMA = {"a": "string", "b": "string"}
MANY = '1,"xyz"\n' * 300_000  # more than one block


def as_it_is(folder: Path, text: str) -> Path:
    (folder / "f.csv").write_bytes(text.encode())
    return folder / "f.csv"


def compressed(folder: Path, text: str) -> Path:
    (folder / "f.csv.gz").write_bytes(gzip.compress(text.encode(), 1))
    return folder / "f.csv.gz"


FORMS = pytest.mark.parametrize("written", [as_it_is, compressed])


@FORMS
@pytest.mark.parametrize(
    "rows",
    ['1,"x\n2,y\n', '1,2\n3,"', '1,"x\r\n2,y\r\n', '1,"x""\n', '1,"""', MANY + '1,"x\n2,y\n'],
    ids=["swallows a row", "empty", "carriage returns", "a quote doubled", "a quote alone", "late"],
)
def test_a_quote_left_open_is_noticed(tmp_path: Path, written: Callable[[Path, str], Path], rows: str) -> None:
    with pytest.raises(FileRefused, match="a quote of its last row is left open") as caught:
        import_files(target_for(tmp_path / "lake", SCHEMA), [written(tmp_path, "a,b\n" + rows)])
    assert caught.value.reason == "truncated"


@FORMS
@pytest.mark.parametrize("text", ['a,"b\n1,2\n', 'a,"b\r\n1,2', '"a,b\n1,2\n'])
def test_a_quote_left_open_in_the_names_is_noticed(
    tmp_path: Path, written: Callable[[Path, str], Path], text: str
) -> None:
    with pytest.raises(FileRefused) as caught:
        import_files(target_for(tmp_path / "lake", SCHEMA), [written(tmp_path, text)])
    assert caught.value.reason in ("truncated", "unknown_column")


@FORMS
@pytest.mark.parametrize("before", ["1,2\n", MANY], ids=["at once", "late"])
def test_a_quote_left_open_before_a_long_rest_is_noticed(
    tmp_path: Path, written: Callable[[Path, str], Path], before: str
) -> None:
    with pytest.raises(FileRefused, match="a row is longer than 1 MiB; is a quote left open") as caught:
        import_files(
            target_for(tmp_path / "lake", SCHEMA), [written(tmp_path, f'a,b\n{before}1,"' + "x\n" * 2_000_000)]
        )
    assert caught.value.reason == "unreadable"


def test_a_row_torn_by_a_quote_left_open_is_no_dead_letter(tmp_path: Path) -> None:
    target = replace(target_for(tmp_path / "lake", SCHEMA), broken=BrokenRows(10))
    with pytest.raises(FileRefused, match="left open"):
        import_files(target, [as_it_is(tmp_path, 'a,b\n1,2\n"3,4\n5,6\n')])


@FORMS
@pytest.mark.parametrize(
    ("rows", "last"),
    [
        ('1,"x\n"\n', "x\n"),
        ('1,"x"', "x"),
        ('1,""\n', ""),
        ("1,\n", None),
        ('1,5" pipe\n', '5" pipe'),
        ('1,a"\n', 'a"'),
        ('1,"x""\n"\n\n', 'x"\n'),
        ('1,"""x"""', '"x"'),
        (MANY, "xyz"),
    ],
)
def test_a_quote_that_is_closed_or_is_none_is_taken(
    tmp_path: Path, written: Callable[[Path, str], Path], rows: str, last: str | None
) -> None:
    (file,) = import_files(target_for(tmp_path / "lake", SCHEMA), [written(tmp_path, "a,b\n" + rows)])
    found = pq.read_table(file.path.removeprefix("file://"))
    assert (found["b"][-1].as_py(), found.num_rows) == (last, max(rows.count('1,"xyz"'), 1))

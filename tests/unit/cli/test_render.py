"""Tables for people, one JSON document for scripts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest

from lakeward.cli.render import Output, as_row, cell, print_json, show_record, show_rows, size_text
from lakeward.names import TableIdentifier

JSON, PEOPLE = Output(json=True), Output()
TIME = datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)
ROWS = [{"name": "a", "rows": 12345, "bytes": 2_000_000, "at": TIME, "more": None}] * 3


def test_a_list_for_scripts_is_one_document_with_all_fields_and_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows("things", ROWS[:2], ["name"], 3, to=JSON)
    found = json.loads(capsys.readouterr().out)
    assert found["total"] == 3 and len(found["things"]) == 2
    assert found["things"][0] == {
        "name": "a",
        "rows": 12345,
        "bytes": 2_000_000,
        "at": "2026-01-02T03:04:05.600000Z",
        "more": None,
    }


def test_a_list_for_people_says_that_there_is_more(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows("things", ROWS[:2], ["name", "rows", "bytes", "at", "more"], 3, to=PEOPLE)
    shown = capsys.readouterr().out
    assert "12,345" in shown and "2.0 MB" in shown and "2026-01-02 03:04:05" in shown and "–" in shown
    assert "2 of 3; --limit shows more" in shown


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows("things", [], ["name"], to=PEOPLE)
    assert capsys.readouterr().out == "no things\n"


def test_names_are_shown_as_they_are_and_long_ones_are_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    odd = "[bold]not markup[/bold] :smile: " + "x" * 300
    show_rows("things", [{"name": odd}], ["name"], to=PEOPLE)
    assert odd in capsys.readouterr().out


def test_a_record_is_an_object_or_a_line_for_each_field(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"rows": 1000, "seconds": {"write": 0.5}, "snapshot_id": 1234567, "files": []}
    show_record(record, to=JSON)
    assert json.loads(capsys.readouterr().out) == record
    show_record(record, to=PEOPLE)
    assert capsys.readouterr().out.splitlines() == [
        "rows         1,000",
        "seconds      write 0.500",
        "snapshot id  1234567",
        "files        –",
    ]


def test_structs_and_dataclasses_are_rows() -> None:
    class Struct(msgspec.Struct):
        at: datetime
        name: TableIdentifier

    @dataclass
    class Data:
        count: int

    row = as_row(Struct(TIME, TableIdentifier(("a",), "b")))
    assert row["at"] is TIME
    assert as_row(Data(3)) == {"count": 3}


@pytest.mark.parametrize(
    "size, text",
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (5 * 10**12, "5.0 TB")],
)
def test_sizes_are_in_units_of_a_thousand(size: int, text: str) -> None:
    assert size_text(size) == text == cell(size, "bytes")


def test_numbers_that_are_no_amounts_are_not_grouped() -> None:
    assert cell(8123456789, "snapshot_id") == "8123456789"
    assert cell(True) == "yes" and cell(False) == "no"


def test_what_would_steer_the_terminal_or_is_half_a_character_is_written_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = "a\x1b[31mb\x07 \ud800 \x9b1m\r"
    assert cell(shown) == r"a\x1b[31mb\x07 \ud800 \x9b1m\r"
    assert cell("first\n\tsecond ä 😀") == "first\n\tsecond ä 😀"
    show_record({"text": shown, "in a document": {"a": [shown]}}, to=PEOPLE)
    show_rows("rows", [{"text": shown}], ["text"], to=PEOPLE)
    assert not {"\x1b", "\x07", "\r"} & set(capsys.readouterr().out)


def test_half_a_character_is_an_escape_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"text": "\ud800", "number": math.nan, "at": datetime(2026, 1, 2, tzinfo=UTC), "deep": [{"a": math.inf}]}
    print_json(document)
    text = capsys.readouterr().out
    text.encode()
    assert json.loads(text) == {"text": "\ud800", "number": None, "at": "2026-01-02T00:00:00Z", "deep": [{"a": None}]}

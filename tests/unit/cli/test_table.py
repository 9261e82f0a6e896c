"""Tables at a terminal: no line is broken, what is copied stays whole."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lakeward.cli.table import Kind, print_table
from tests.support.terminal import shown_in_terminal

PROGRAM = """
import json, sys
from datetime import UTC, datetime
from lakeward.cli.render import Output, show_rows
row = {
    "id": 4611686018427387904, "table": "shop.orders", "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "rows": 1234567,
    "error_message": "first line\\nsecond " + "words " * 60, "parent_id": 8123456789012345678, "status": "open",
}
show_rows("runs", [row] * 2, list(row), to=Output(wide=json.loads(sys.argv[1])))
"""


def shown(columns: int, wide: bool = False) -> list[str]:
    text, code = shown_in_terminal([sys.executable, "-c", PROGRAM, json.dumps(wide)], columns)
    assert code == 0
    return text.splitlines()


def test_at_80_columns_a_row_is_a_line_ids_and_times_are_whole_and_what_left_is_named() -> None:
    lines = shown(80)
    assert len(lines) == 5 and all(len(line) <= 80 for line in lines)
    for line in lines[2:4]:
        assert line.startswith("4611686018427387904  shop.orders  2026-01-02 03:04:05  1,234,567  first line")
        assert line.endswith("…")
    assert lines[4] == "not shown: parent id, status; --wide shows all"


def test_a_wider_terminal_shows_more() -> None:
    lines = shown(140)
    assert len(lines) == 4 and all(len(line) <= 140 for line in lines)
    assert "8123456789012345678" in lines[2] and "open" in lines[2] and "…" in lines[2]


def test_wide_shows_all_whole() -> None:
    lines = shown(80, wide=True)
    text = "".join(lines)  # the terminal has no part in it: what is written is what is read
    assert "…" not in text and text.count("8123456789012345678") == 2 and r"first line\nsecond" in text


def test_a_path_keeps_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    path = "data/0196-7777/00000-0-aaaa-bbbb-00001.parquet"
    assert print_table(["file", "rows"], [[path, "1"]], ["path", "number"], 30) == []
    assert capsys.readouterr().out.splitlines()[2] == f"…{path[-23:]}     1"


def test_the_first_column_is_whole_if_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_table(["table", "more"], [["n" * 38, "m" * 38]], ["text", "text"], 40) == ["more"]
    assert "n" * 38 in capsys.readouterr().out


KINDS: st.SearchStrategy[Kind] = st.sampled_from(["whole", "number", "text", "path"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "M", "Z"]), max_size=60)


@given(st.data(), st.integers(1, 6), st.integers(20, 120))
def test_a_table_is_never_wider_than_its_room_unless_one_column_is(data: st.DataObject, count: int, room: int) -> None:
    kinds: list[Kind] = data.draw(st.lists(KINDS, min_size=count, max_size=count))
    rows = data.draw(st.lists(st.lists(TEXTS, min_size=count, max_size=count), min_size=1, max_size=4))
    titles = [f"c{at}" for at in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lines.append)
        left = print_table(titles, rows, kinds, room)
    assert len(lines) == 2 + len(rows)
    first = max(cell_len(row[0]) for row in [titles, *rows])
    assert max(map(cell_len, lines)) <= (max(room, first) if len(left) == count - 1 else room)

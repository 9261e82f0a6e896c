"""The demo replaces its own folder, and never another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config import load_settings
from lakeward.demo.folder import make_folder, remove_folder
from lakeward.errors import InvalidInput, WarehouseNotWritable


def test_a_former_demo_is_replaced(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "demo")
    (folder / "registry.db").write_text("old")
    assert make_folder(tmp_path / "demo") == folder
    assert not (folder / "registry.db").exists()


def test_a_folder_with_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInput) as refused:
        make_folder(tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert make_folder(tmp_path) == tmp_path


def test_a_file_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(InvalidInput):
        make_folder(tmp_path / "demo")


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WarehouseNotWritable) as refused:
        make_folder(tmp_path / "file" / "demo")
    assert str(tmp_path) in str(refused.value)


def test_commands_in_the_folder_find_the_lakehouse(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "demo")
    settings = load_settings(folder / "lakeward.toml", {})
    assert settings.registry == str(folder / "registry.db") and settings.warehouse == str(folder / "warehouse")


def test_only_what_a_demo_made_is_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    remove_folder(tmp_path)
    assert (tmp_path / "thesis.txt").exists()
    remove_folder(make_folder(tmp_path / "demo"))
    assert not (tmp_path / "demo").exists()

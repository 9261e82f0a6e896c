from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidInput, InvalidSetting
from lakeward.storage import locations

UUID = "1f0c9a2e-0000-4000-8000-000000000000"


def test_a_relative_folder_becomes_an_absolute_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locations.warehouse_location("lake") == f"file://{os.getcwd()}/lake"
    assert locations.warehouse_location("./lake/") == f"file://{os.getcwd()}/lake"


@pytest.mark.parametrize(
    "text, location",
    [
        ("/data/my lake", "file:///data/my lake"),
        ("/data/Größe", "file:///data/Größe"),
        ("file:///data/lake/", "file:///data/lake"),
        ("file:/data/lake", "file:///data/lake"),
        ("/data/a:b", "file:///data/a:b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a b/c/", "s3://bucket/a b/c"),
    ],
)
def test_a_warehouse_has_one_location_without_a_slash_at_its_end(text: str, location: str) -> None:
    assert locations.warehouse_location(text) == location


@pytest.mark.parametrize(
    "text",
    ["", " ", "/", "file:///", "file://host/x", "hdfs://a/b", "s3a://bucket/x", "s3://", "s3://ab", "s3://Bucket/x"]
    + ["s3://bucket//x", "s3://bucket/../x"]
    + [f"/data/a{c}b" for c in "#?%*[]{}\\\n\x7f"],
)
def test_a_warehouse_that_engines_would_read_differently_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        locations.warehouse_location(text)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.text(min_size=1))
def test_any_name_gives_a_location_of_safe_parts(namespace: list[str], name: str) -> None:
    location = locations.table_location("file:///w", tuple(namespace), name, UUID)
    parts = location.removeprefix("file:///w/").split("/")
    assert len(parts) == 2  # the namespace's folder, and the table's in it: no table's folder holds another's
    parts = [*parts[0].split("."), parts[1]]
    assert len(parts) == len(namespace) + 1
    for part in parts:
        assert 1 <= len(part) <= 80
        assert part[0].isalnum()
        assert all(c.isascii() and (c.isalnum() or c in "-_") for c in part)


def test_names_that_reduce_to_the_same_text_differ_by_uuid() -> None:
    first = locations.table_location("s3://b/w", ("a",), "x/y", UUID)
    second = locations.table_location("s3://b/w", ("a",), "x y", UUID.replace("1f0c", "2f0c"))
    assert first == "s3://b/w/a/x-y-1f0c9a2e"
    assert second == "s3://b/w/a/x-y-2f0c9a2e"


def test_a_write_and_a_flush_have_folders_of_their_own() -> None:
    assert locations.write_prefix("file:///w/a/t-1", "i1") == "file:///w/a/t-1/data/i1/"
    assert locations.flush_prefix("file:///w/a/t-1", "i1") == "file:///w/a/t-1/metadata/i1/"
    assert locations.file_name(7, "json.zst") == "00007.json.zst"


@pytest.mark.parametrize("intent", ["", ".", "..", "a/b", "-", "a b", "x" * 200])
def test_an_intent_id_that_would_leave_its_folder_is_refused(intent: str) -> None:
    with pytest.raises(InvalidInput):
        locations.write_prefix("file:///w/t", intent)


def test_no_uuid_no_location() -> None:
    with pytest.raises(InvalidInput):
        locations.table_location("file:///w", ("a",), "t", "../../etc")

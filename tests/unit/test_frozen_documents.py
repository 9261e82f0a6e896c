from __future__ import annotations

import copy
import json
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lakeward.frozen_documents import SharedDict, SharedList, memory_of, shared

DOCUMENT: dict[str, Any] = {"fields": [{"id": 1, "type": {"list": ["a", None, True]}}], "schema-id": 0}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(x=1),
        lambda d: d.pop("fields"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.setdefault("x", 1),
        lambda d: d.__setitem__("x", 1),
        lambda d: d.__delitem__("fields"),
        lambda d: d.__ior__({"x": 1}),
        lambda d: d["fields"].append(1),
        lambda d: d["fields"].extend([1]),
        lambda d: d["fields"].insert(0, 1),
        lambda d: d["fields"].pop(),
        lambda d: d["fields"].remove(DOCUMENT["fields"][0]),
        lambda d: d["fields"].clear(),
        lambda d: d["fields"].reverse(),
        lambda d: d["fields"].sort(),
        lambda d: d["fields"].__setitem__(0, 1),
        lambda d: d["fields"].__delitem__(0),
        lambda d: d["fields"].__iadd__([1]),
        lambda d: d["fields"].__imul__(2),
        lambda d: d["fields"][0]["type"]["list"].append(1),
    ],
)
def test_a_shared_document_cannot_be_changed_at_any_depth(change: Callable[[Any], object]) -> None:
    document = shared(DOCUMENT)
    with pytest.raises(TypeError, match="shared by all"):
        change(document)
    assert document == DOCUMENT


def test_no_method_that_changes_a_dict_or_a_list_is_forgotten() -> None:
    reading = {"copy", "fromkeys", "get", "items", "keys", "values", "count", "index", "__new__", "__init__"}
    changing = {"__setitem__", "__delitem__", "__ior__", "__iadd__", "__imul__"}
    for kind, plain in ((SharedDict, dict), (SharedList, list)):
        names = {name for name in vars(plain) if not name.startswith("__") or name in changing} - reading
        assert {name for name in names if getattr(kind, name) is getattr(plain, name)} == set()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_a_copy_can_be_changed_at_every_depth(copied: Callable[[Any], Any]) -> None:
    made = copied(shared(DOCUMENT))
    made["fields"][0]["type"]["list"].append(1)
    made["new"] = 1
    assert type(made) is dict
    assert type(made["fields"]) is list


def test_a_shared_document_is_written_as_the_plain_one() -> None:
    document = shared(DOCUMENT)
    assert msgspec.json.encode(document) == msgspec.json.encode(DOCUMENT)
    assert json.dumps(document) == json.dumps(DOCUMENT)
    assert document == DOCUMENT


@pytest.mark.parametrize("columns", [1, 20, 1000])
def test_the_memory_that_is_counted_is_hardly_less_than_python_takes_and_at_most_half_more(columns: int) -> None:
    fields = [{"id": i, "name": f"column_{i}", "type": "decimal(9, 2)", "required": False} for i in range(columns)]
    text = msgspec.json.encode({"type": "struct", "fields": fields})
    msgspec.json.decode(text)  # keys that the decoder remembers are nobody's
    made = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made += [shared(msgspec.json.decode(text)) for _ in range(50)]
        taken = (tracemalloc.get_traced_memory()[0] - before) / 50
    finally:
        tracemalloc.stop()
    assert taken * 0.9 < memory_of(made[0]) < taken * 1.5

"""Whoever asks what a front's method is, is shown the function of the room: its parameters, types and docstring."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path
from typing import Any

import griffe
import pytest

from lakeward import Lake, MetadataStore, StorageManager
from lakeward.fronts import bound, late_bound
from lakeward.lake.log import TopicLog
from lakeward.metadata import DeadLetterFilter, ErrorFilter, MetadataManager
from lakeward.ops.records.operations import DeadLetterFields, ErrorFields

ROOT = Path(__file__).parents[2]
FRONTS = (MetadataManager, MetadataStore, StorageManager, TopicLog, Lake)


def _greet(registry: str, kind: str, name: str, times: int = 1, *, mark: str = "!") -> str:
    """Say it."""
    return f"{registry}: " + f"{kind} {name}{mark}" * times


class Front:
    registry = "r"
    mark = "?"

    greet = bound(_greet)
    hello = bound(_greet, "hello", whom="name")
    ask = bound(_greet, "hello", own=("mark",))
    late = late_bound(lambda: _greet)


def test_a_bound_function_gets_the_registry_what_is_fixed_and_what_the_front_has() -> None:
    front = Front()
    assert front.greet("good day", "Ann") == "r: good day Ann!"
    assert front.hello("Ann", 2) == "r: hello Ann!hello Ann!"
    assert front.ask("Ann") == "r: hello Ann?" and front.ask("Ann", mark=".") == "r: hello Ann."
    assert front.late("good day", "Ann", mark="") == "r: good day Ann"


def test_a_subclass_that_calls_the_method_it_overrides_runs_once() -> None:
    class Base:
        registry = "r"
        greet = bound(_greet)

    calls = []

    class Derived(Base):
        def greet(self, *arguments: Any, **named: Any) -> str:
            calls.append(arguments)
            return super().greet(*arguments, **named)

    assert Derived().greet("good day", "Ann") == "r: good day Ann!"
    assert calls == [("good day", "Ann")]


def test_an_argument_has_its_other_name_and_both_at_once_are_refused() -> None:
    hello: Any = Front().hello
    assert hello(whom="Ann") == hello(name="Ann")
    with pytest.raises(TypeError, match="'whom' and 'name', which are one argument"):
        hello(whom="Ann", name="Ann")


def test_help_shows_the_functions_own_parameters_and_docstring() -> None:
    assert str(inspect.signature(Front.hello)) == "(self, name: 'str', times: 'int' = 1, *, mark: 'str' = '!') -> 'str'"
    assert str(inspect.signature(Front().ask)) == "(name: 'str', times: 'int' = 1) -> 'str'"
    shown = pydoc.plain(pydoc.render_doc(Front))
    assert "hello(self, name: 'str', times: 'int' = 1" in shown and "late(self, kind: 'str'" in shown
    assert shown.count("Say it.") == 4
    assert Front.late.__qualname__ == "Front.late"


@pytest.mark.parametrize("front", FRONTS)
def test_every_method_of_a_front_says_what_it_does(front: type[Any]) -> None:
    methods = {name: value for name, value in inspect.getmembers(front, inspect.isfunction) if name[0] != "_"}
    assert len(methods) > 5
    assert [name for name, value in methods.items() if not inspect.getdoc(value)] == []
    assert [name for name, value in methods.items() if value.__name__ != name] == []


@pytest.mark.parametrize(("kind", "keywords"), [(DeadLetterFilter, DeadLetterFields), (ErrorFilter, ErrorFields)])
def test_a_filters_fields_are_the_keywords_that_take_its_place(kind: Any, keywords: Any) -> None:
    assert inspect.get_annotations(kind) == {
        name: value.__forward_arg__ for name, value in inspect.get_annotations(keywords).items()
    }


def test_the_reference_shows_bound_methods_with_their_parameters_and_docstrings() -> None:
    extensions = griffe.load_extensions(str(ROOT / "tools" / "docs_fields.py"), str(ROOT / "tools" / "docs_fronts.py"))
    package = griffe.load("lakeward", search_paths=[ROOT / "src"], extensions=extensions)
    for front in FRONTS:
        page = package[front.__module__.removeprefix("lakeward.") + "." + front.__name__]
        for name, method in inspect.getmembers(front, inspect.isfunction):
            if name.startswith("_"):
                continue
            shown = page.members[name]
            assert list(inspect.signature(method).parameters) == [each.name for each in shown.parameters], name
            told = "" if shown.docstring is None else shown.docstring.value  # of a class, its attributes too
            assert told.split("\n\nAttributes:")[0] == inspect.getdoc(method), name

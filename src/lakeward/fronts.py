"""Methods of a front that are functions of the rooms below it: a signature and its docstring are spelled once, there.

`get_topic = bound(topics.get, name="topic")` is a method that calls `topics.get` with the front's `registry` before what it is
given. `help`, type checkers and the reference show the function's own parameters and docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


@overload
def bound(
    function: Callable[Concatenate[Any, P], T], /, *, own: tuple[str, ...] = (), **also: str
) -> Callable[Concatenate[Any, P], T]: ...


@overload
def bound(
    function: Callable[Concatenate[Any, A, P], T], first: A, /, *, own: tuple[str, ...] = (), **also: str
) -> Callable[Concatenate[Any, P], T]: ...


def bound(function: Any, /, *first: Any, own: tuple[str, ...] = (), **also: str) -> Any:
    """A function of a room (or a class), which takes a registry before all else, as a method of a front with a `registry`.

    Args:
        first: what the function takes after the registry, fixed here.
        own: keyword arguments that the front has as attributes of these names.
        also: other names of arguments, as other=own; both at once are a TypeError.
    """
    return _Bound(lambda: function, first, own, also)


def late_bound(
    find: Callable[[], Callable[Concatenate[Any, P], T]], /, **also: str
) -> Callable[Concatenate[Any, P], T]:
    """As `bound`, of a function whose module is loaded at the first call: `find` names it."""
    return _Bound(find, (), (), also)  # type: ignore[return-value]


class _Bound:
    """Puts the method in its own place when it is first asked for."""

    def __init__(
        self, find: Callable[[], Callable[..., Any]], first: tuple[Any, ...], own: tuple[str, ...], also: dict[str, str]
    ) -> None:
        self._find, self._first, self._own, self._also = find, first, own, also

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        method = self._method()
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)  # not what the instance has by that name: `super()` asks too

    def _method(self) -> Callable[..., Any]:
        function, first, own, also = self._find(), self._first, self._own, self._also

        def call(front: Any, /, *arguments: Any, **named: Any) -> Any:
            return function(front.registry, *first, *arguments, **named)

        def call_with_more(front: Any, /, *arguments: Any, **named: Any) -> Any:
            for other in also.keys() & named.keys():
                if also[other] in named:
                    raise TypeError(f"{self._name}() got {other!r} and {also[other]!r}, which are one argument")
                named[also[other]] = named.pop(other)
            for name in own:
                named.setdefault(name, getattr(front, name))
            return function(front.registry, *first, *arguments, **named)

        method: Any = update_wrapper(call_with_more if own or also else call, function)
        method.__name__, method.__qualname__ = self._name, f"{self._owner.__qualname__}.{self._name}"
        method.__module__ = self._owner.__module__
        method.__signature__ = self._signature(function)
        return method  # type: ignore[no-any-return]

    def _signature(self, function: Callable[..., Any]) -> inspect.Signature:
        signature = inspect.signature(function)
        if isinstance(function, type):
            signature = signature.replace(return_annotation=function.__name__)
        taken = list(signature.parameters.values())[1 + len(self._first) :]
        front = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return signature.replace(parameters=[front, *(each for each in taken if each.name not in self._own)])

"""Documents that many hold at once: nobody can change them, and what they take of memory is known."""

from __future__ import annotations

from sys import getsizeof
from typing import Any, NoReturn

import msgspec


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("this document is shared by all who read it and cannot be changed; change a copy.deepcopy() of it")


class SharedDict(dict[str, Any]):
    """A dict that cannot be changed; copies of it can."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: _changeable(value) for key, value in self.items()}


class SharedList(list[Any]):
    """A list that cannot be changed; copies of it can."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> Any:
        return list, (list(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [_changeable(value) for value in self]


def _changeable(value: Any) -> Any:
    return value.__deepcopy__({}) if isinstance(value, SharedDict | SharedList) else value


def shared(document: Any) -> Any:
    """A JSON document of dicts, lists and plain values, as one that cannot be changed."""
    if isinstance(document, dict):
        return SharedDict({key: shared(value) for key, value in document.items()})
    if isinstance(document, list):
        return SharedList(map(shared, document))
    return document


def memory_of(value: Any) -> int:
    """The bytes that a record or document takes with all that it holds; what it holds twice counts once."""
    return _memory_of(value, set())


def _memory_of(value: Any, seen: set[int]) -> int:
    if value is None or value is True or value is False or id(value) in seen:
        return 0  # Python has one of the former, whoever uses it
    seen.add(id(value))
    total = getsizeof(value)
    kind = type(value)
    if kind is str or kind is int:
        return total
    if isinstance(value, dict):
        for key, each in value.items():
            total += _memory_of(key, seen) + _memory_of(each, seen)
    elif isinstance(value, list | tuple):
        for each in value:
            total += _memory_of(each, seen)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            total += _memory_of(getattr(value, name), seen)
    return total

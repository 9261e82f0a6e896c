"""Documents that many hold at once: nobody can change them, and what they take of memory is known."""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
    seen: set[int] = set()
    total = 0
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or _is_everybodys(each):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        waiting.extend(_parts(each))
    return total


def _is_everybodys(value: Any) -> bool:
    """Python has one of these, whoever uses it."""
    return value is None or isinstance(value, bool) or (isinstance(value, int) and -5 <= value <= 256)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    return ()

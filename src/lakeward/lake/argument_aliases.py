"""Arguments under the names that programs from elsewhere know them by (docs/decisions/0016)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def also_named(**others: str) -> Callable[[F], F]:
    """Let a method take keyword arguments under other names too, given as other=own. Both at once are a TypeError."""

    def decorate(method: F) -> F:
        def own(named: dict[str, Any]) -> dict[str, Any]:
            for other in others.keys() & named.keys():
                if others[other] in named:
                    raise TypeError(f"{method.__name__}() got {other!r} and {others[other]!r}, which are one argument")
                named[others[other]] = named.pop(other)
            return named

        @functools.wraps(method)
        def called(*given: Any, **named: Any) -> Any:
            return method(*given, **(own(named) if named else named))

        @functools.wraps(method)
        async def awaited(*given: Any, **named: Any) -> Any:
            return await method(*given, **own(named))

        return awaited if inspect.iscoroutinefunction(method) else called  # type: ignore[return-value]

    return decorate

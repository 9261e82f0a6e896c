"""What a package offers, imported when it is first asked for: no program loads what it does not use."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_NOTHING: Mapping[str, str] = MappingProxyType({})


def attributes(package: str, homes: Mapping[str, str] = _NOTHING) -> Callable[[str], Any]:
    """A package's `__getattr__`, for its modules and for the names in `homes`, which says in which module each one stands.

    `from lakeward import components` then loads none of them, and `components.audit.audit(...)` one. Type checkers read
    neither: the package imports the same names under TYPE_CHECKING.
    """

    def get(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get

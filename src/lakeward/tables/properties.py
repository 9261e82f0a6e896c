"""Properties of tables, as they are set: refused where they cannot be meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeward.registry import secrets
from lakeward.tables.records import properties as declared


def check_properties(properties: Mapping[str, Any]) -> None:
    """A table's properties: texts, no secrets, and values that can be understood. None for a value removes one.

    Raises:
        InvalidInput: naming the property.
    """
    secrets.check_properties(properties)
    for name, value in properties.items():
        if value is not None:
            declared.check(name, value)

"""Properties of tables that mean something here: refused where they cannot be meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeward.iceberg import expiry
from lakeward.iceberg.merging import rule_of
from lakeward.model import invalid_rows
from lakeward.model.snapshot_rules import rules_of
from lakeward.registry import secrets

_EXPIRY = (expiry.MAX_SNAPSHOT_AGE, expiry.MIN_SNAPSHOTS, expiry.MAX_REF_AGE)


def check_properties(properties: Mapping[str, Any]) -> None:
    """A table's properties: texts, no secrets, and values that can be understood. None for a value removes one.

    Raises:
        InvalidInput: naming the property.
    """
    secrets.check_properties(properties)
    rules_of(properties)
    invalid_rows.rule_of(properties)
    rule_of({name: value for name, value in properties.items() if value is not None})
    for name in _EXPIRY:
        if properties.get(name) is not None:
            expiry.number(properties, name)

"""Settings of components in a settings file."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.astha import AsthaConfig
from lakeward.components.snapshotter import SnapshotterConfig
from lakeward.components.supervisor import configured
from lakeward.errors import InvalidSetting


@pytest.mark.parametrize(
    ("kind", "table", "name"),
    [(SnapshotterConfig, "components.snapshotter", "threads"), (AsthaConfig, "astha", "workers")],
)
@pytest.mark.parametrize("value", [0, "2", None])
def test_a_value_that_makes_no_sense_is_named_with_its_table(kind: Any, table: str, name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=rf"^\[{table}\] {name} "):
        configured(kind, table, {name: value})

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from lakeward.db.conditions import at_least, below, equal
from lakeward.db.schema import sync_runs
from lakeward.ops.records.operations import SyncStatus

_c = sync_runs.c


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()])  # type: ignore[no-untyped-call]
def test_what_is_not_asked_for_leaves_no_trace_in_the_query(dialect: sa.Dialect) -> None:
    plain = sa.select(_c.id).where(_c.id > 5)
    asked = plain.where(equal(_c.schema_name, None), at_least(_c.started_at, None), below(_c.id, None))
    assert str(asked.compile(dialect=dialect)) == str(plain.compile(dialect=dialect))


def test_false_and_zero_are_asked_for_and_an_enum_stands_for_its_value() -> None:
    asked = sa.and_(equal(_c.id, 0), equal(_c.schema_name, ""), below(_c.id, 0), equal(_c.status, SyncStatus.RUNNING))
    assert [type(value) for value in asked.compile().params.values()] == [int, str, int, str]

"""The triggers are made from the schema, for every watched table, on both databases."""

from __future__ import annotations

import pytest

from lakeward.db import feed_triggers, schema


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_every_watched_table_is_fed_on_insert_update_and_delete(dialect: str) -> None:
    made = feed_triggers.statements(dialect)
    for table in schema.WATCHED:
        after = " ".join(statement for statement in made if f" ON {table} " in statement and " AFTER " in statement)
        assert all(f"{operation}" in after for operation in ("INSERT", "UPDATE", "DELETE")), table


def test_what_is_watched_exists_and_belongs_to_a_table() -> None:
    for name, left_out in schema.WATCHED.items():
        columns = {column.name for column in schema.metadata.tables[name].columns}
        assert left_out < columns
        assert "table_id" in columns - left_out


def test_nothing_that_a_subscriber_knows_a_row_by_is_left_out() -> None:
    for name, left_out in schema.WATCHED.items():
        assert not left_out & {column.name for column in schema.metadata.tables[name].primary_key.columns}


def test_every_name_made_here_has_the_prefix_by_which_it_is_removed() -> None:
    for statement in feed_triggers.statements("sqlite") + feed_triggers.statements("postgresql"):
        assert statement.split()[2].startswith(feed_triggers.PREFIX)

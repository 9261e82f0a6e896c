"""Any order of changes: the counters are exact, the registry is what a model in Python says, the feed has each change."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import hypothesis
import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lakeward.db import schema
from lakeward.db.types import time_text
from lakeward.errors import BatchOutOfOrder, MetadataVersionNotFound, TableAlreadyExists, TableNotFound
from lakeward.lake import writes
from lakeward.registry import Registry, intents
from lakeward.tables import evolution, namespaces, registration, retirement, snapshots, tables
from lakeward.tables.records.files import AppendResult, Batch, DataFile, Intent
from tests.support.registries import assert_exact, changes, data_file, last_sequence, make_table, rows_of

NAMES = ["a", "b", "c"]
PARTITIONS = ["x", "y", None]
KEYS = {
    "tables": ["table_id"],
    "table_columns": ["table_id", "field_id"],
    "table_metadata": ["table_id", "metadata_version"],
    "table_files": ["file_id"],
    "table_stats": ["table_id", "spec_id", "partition_key", "file_type"],
    "table_snapshots": ["table_id", "snapshot_id"],
}

names = st.sampled_from(NAMES)
file_shapes = st.tuples(st.integers(1, 5), st.sampled_from(PARTITIONS), st.sampled_from(["parquet", "parquet", "json"]))


@dataclass
class Version:
    columns: dict[str, int]
    properties: dict[str, str]


@dataclass
class Model:
    """What a table should be."""

    table_id: int
    versions: list[Version]
    last_column_id: int = 2
    files: list[tuple[int, Any, str]] = field(default_factory=list)  # rows, partition, type
    batches: dict[tuple[str, str], AppendResult] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)

    @property
    def current(self) -> Version:
        return self.versions[-1]


_numbers = itertools.count()


class Lakehouse(RuleBasedStateMachine):
    registry: Registry

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"n{next(_numbers)}"
        namespaces.create(self.registry, self.namespace)
        self.model: dict[str, Model] = {}
        self.dropped: list[Model] = []
        self.seen = last_sequence(self.registry)
        self.mirror = {name: rows(self.registry, name) for name in schema.WATCHED}

    def name(self, name: str) -> str:
        return f"{self.namespace}.{name}"

    def table(self, name: str) -> Any:
        return tables.load(self.registry, self.name(name))

    # Tables -----------------------------------------------------------------------------------------------------------
    @rule(name=names)
    def create(self, name: str) -> None:
        if name in self.model:
            with pytest.raises(TableAlreadyExists):
                make_table(self.registry, self.name(name), partition_by=["name"])
            return
        made = make_table(self.registry, self.name(name), partition_by=["name"])
        assert made.table_id not in {each.table_id for each in self.dropped}
        self.model[name] = Model(made.table_id, [Version({"id": 1, "name": 2}, {})])

    @rule(name=names, new_name=names)
    def rename(self, name: str, new_name: str) -> None:
        if name not in self.model or new_name in self.model:
            with pytest.raises(TableNotFound if name not in self.model else TableAlreadyExists):
                tables.rename(self.registry, self.name(name), self.name(new_name))
            return
        tables.rename(self.registry, self.name(name), self.name(new_name))
        self.model[new_name] = self.model.pop(name)

    @rule(name=names, purge=st.booleans())
    def drop(self, name: str, purge: bool) -> None:
        if name not in self.model:
            with pytest.raises(TableNotFound):
                tables.drop(self.registry, self.name(name))
            return
        tables.drop(self.registry, self.name(name), purge=purge)
        self.dropped.append(self.model.pop(name))

    # Metadata ---------------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.model)
    @rule(data=st.data(), column=st.sampled_from(["p", "q"]))
    def change_columns(self, data: st.DataObject, column: str) -> None:
        name, model = self.one(data)
        columns = dict(model.current.columns)
        other = "q" if column == "p" else "p"
        if column not in columns:
            evolution.add_column(self.registry, self.name(name), column, "int")
            model.last_column_id += 1
            columns[column] = model.last_column_id
        elif other not in columns and data.draw(st.booleans(), "rename"):
            evolution.rename_column(self.registry, self.name(name), column, other)
            columns = {other if key == column else key: value for key, value in columns.items()}
        else:
            evolution.drop_column(self.registry, self.name(name), column)
            del columns[column]
        model.versions.append(Version(columns, model.current.properties))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), key=st.sampled_from("ab"), value=st.none() | st.sampled_from("12"))
    def set_property(self, data: st.DataObject, key: str, value: str | None) -> None:
        name, model = self.one(data)
        evolution.set_properties(self.registry, self.name(name), {key: value})
        properties = {**model.current.properties, key: value}
        kept = {k: v for k, v in properties.items() if v is not None}
        if kept != model.current.properties:
            model.versions.append(Version(model.current.columns, kept))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), version=st.integers(1, 12))
    def roll_back(self, data: st.DataObject, version: int) -> None:
        name, model = self.one(data)
        if version > len(model.versions):
            with pytest.raises(MetadataVersionNotFound):
                evolution.rollback(self.registry, self.name(name), version)
            return
        evolution.rollback(self.registry, self.name(name), version)
        model.versions.append(model.versions[version - 1])

    # Files ------------------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.model)
    @rule(data=st.data(), shapes=st.lists(file_shapes, max_size=4))
    def append(self, data: st.DataObject, shapes: list[tuple[int, Any, str]]) -> None:
        name, model = self.one(data)
        table, intent, files = self.written(name, shapes)
        result = registration.register(self.registry, table, intent, files)
        assert result.rows == sum(rows for rows, _, _ in shapes)
        model.files += shapes

    @precondition(lambda self: self.model)
    @rule(
        data=st.data(),
        shapes=st.lists(file_shapes, max_size=3),
        stream=st.sampled_from("st"),
        batch_id=st.sampled_from("123"),
        start=st.none() | st.integers(0, 2),
        length=st.integers(0, 2),
    )
    def append_batch(
        self,
        data: st.DataObject,
        shapes: list[tuple[int, Any, str]],
        stream: str,
        batch_id: str,
        start: int | None,
        length: int,
    ) -> None:
        name, model = self.one(data)
        batch = Batch(stream, batch_id, start, None if start is None else start + length)
        table, intent, files = self.written(name, shapes)
        first = model.batches.get((stream, batch_id))
        if first is None and start is not None and model.positions.get(stream, start) != start:
            with pytest.raises(BatchOutOfOrder):
                registration.register(self.registry, table, intent, files, batch=batch)
            intents.abort(self.registry, intent)
            return
        result = registration.register(self.registry, table, intent, files, batch=batch)
        assert result.replayed == (first is not None)
        if first is not None:
            assert (result.files, result.rows) == (first.files, first.rows)
            intents.abort(self.registry, intent)
            return
        model.batches[stream, batch_id] = result
        model.files += shapes
        if start is not None:
            model.positions[stream] = start + length

    @precondition(lambda self: self.model)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def retire(self, data: st.DataObject, partition: Any) -> None:
        name, model = self.one(data)
        leaving = [file for file in model.files if file[1] == partition]
        count = retirement.retire_partitions(self.registry, self.table(name), [{"name": partition}])
        assert count == len(leaving)
        model.files = [file for file in model.files if file[1] != partition]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), shapes=st.lists(st.integers(1, 5), max_size=3), partition=st.sampled_from(PARTITIONS))
    def replace(self, data: st.DataObject, shapes: list[int], partition: Any) -> None:
        name, model = self.one(data)
        new = [(rows, partition, "parquet") for rows in shapes]
        writes.write(
            self.registry,
            self.table(name).identifier,
            lambda target: made_files(target.intent, new),
            partition={"name": partition},
        )
        model.files = [file for file in model.files if file[1] != partition] + new

    def one(self, data: st.DataObject) -> tuple[str, Model]:
        name = data.draw(st.sampled_from(sorted(self.model)), "table")
        return name, self.model[name]

    def written(self, name: str, shapes: list[tuple[int, Any, str]]) -> tuple[Any, Intent, list[DataFile]]:
        table = self.table(name)
        intent = intents.open_intent(self.registry, table)
        return table, intent, made_files(intent, shapes)

    # What holds after each step -----------------------------------------------------------------------------------------
    @invariant()
    def the_registry_is_what_the_model_says(self) -> None:
        found = tables.list_tables(self.registry, self.namespace)
        assert {table.name: table.table_id for table in found} == {n: m.table_id for n, m in self.model.items()}
        for table in found:
            model = self.model[table.name]
            assert_exact(self.registry, table)
            live = snapshots.list_files(self.registry, table)
            shapes = Counter((f.row_count, f.partition[1000], f.file_type) for f in live)
            assert shapes == Counter(model.files)
            versions = tables.versions(self.registry, table)
            assert [v.properties for v in versions] == [v.properties for v in model.versions]
            assert [{f["name"]: f["id"] for f in v.schema["fields"]} for v in versions] == [
                v.columns for v in model.versions
            ]
            assert table.last_column_id == model.last_column_id
        assert not rows_of(self.registry, "pending_writes")

    @invariant()
    def the_feed_has_exactly_the_changes(self) -> None:
        """Replayed over what was there, each change in its place, it gives what is there."""
        for change in changes(self.registry, self.seen):
            self.seen = change["sequence"]
            name, row = change["table_name"], change["data"]
            key = tuple(row[column] for column in KEYS[name])
            there = self.mirror[name]
            assert (key in there) == (change["operation"] != "INSERT")
            if change["operation"] == "DELETE":
                assert there.pop(key) == row
            else:
                there[key] = row
        for name, there in self.mirror.items():
            assert there == rows(self.registry, name)


def made_files(intent: Intent, shapes: list[tuple[int, Any, str]]) -> list[DataFile]:
    return [
        msgspec.structs.replace(data_file(intent.prefix, range(rows), file_type=file_type), partition={1000: partition})
        for rows, partition, file_type in shapes
    ]


def rows(registry: Registry, name: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """A watched table's rows as the feed would tell them, by key."""
    kept = [column.name for column in schema.metadata.tables[name].columns if column.name not in schema.WATCHED[name]]
    found = [{column: told(row[column]) for column in kept} for row in rows_of(registry, name)]
    return {tuple(row[column] for column in KEYS[name]): row for row in found}


def told(value: Any) -> Any:
    return time_text(value) if isinstance(value, datetime) else value


def test_any_order_of_changes(registry: Registry) -> None:
    machine = type("Bound", (Lakehouse,), {"registry": registry})
    run_state_machine_as_test(
        machine,
        settings=hypothesis.settings(
            max_examples=8,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
    with registry.database.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.registry_changes)).scalar_one() > 0

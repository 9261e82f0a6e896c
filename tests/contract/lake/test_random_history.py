"""Any order of appends, replacements, removals, flushes, names, expiries, rollbacks, merges, repairs and clean-ups.

After each step the registry's rows, the metadata file as PyIceberg reads it, each snapshot that is retained and each name are
what a model in Python says; after each clean-up every object of the table is one that something reaches.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.arrow.write import write_arrow
from lakeward.errors import RefAlreadyExists, SnapshotNotFound
from lakeward.lake import writes
from lakeward.snapshots.manifest_merging import merge_manifests
from tests.support.lakes import assert_nothing_left_over, make_table, open_lake
from tests.support.registries import assert_exact

PARTITIONS = ["a", "b", "c"]
NAMES = ["t1", "t2", "b1"]
partitions = st.sampled_from(PARTITIONS)
names = st.sampled_from(NAMES)
# One of what there is then: how many snapshots there are follows from sizes of manifests too, which differ from run to run.
numbers = st.integers(0, 99)
_numbers = itertools.count()

Rows = frozenset[tuple[int, str]]


@dataclass(frozen=True)
class Made:
    """A snapshot as it should be."""

    rows: Rows
    parent: int | None


class History(RuleBasedStateMachine):
    lake: Lake

    def __init__(self) -> None:
        super().__init__()
        self.name = f"h.t{next(_numbers)}"
        few = {"commit.manifest.min-count-to-merge": "2"}
        self.table = make_table(self.lake, self.name, partition_by=["name"], properties=few)
        self.live: set[tuple[int, str]] = set()
        self.ids = itertools.count()
        self.made: dict[int, Made] = {}  # retained
        self.current: int | None = None
        self.names: dict[str, int] = {}

    # Writes -----------------------------------------------------------------------------------------------------------
    @rule(partition=partitions, count=st.integers(1, 3))
    def append(self, partition: str, count: int) -> None:
        rows = [(next(self.ids), partition) for _ in range(count)]
        self.lake.append(self.name, [{"id": i, "name": name} for i, name in rows])
        self.live |= set(rows)

    @rule(partition=partitions)
    def replace(self, partition: str) -> None:
        row = (next(self.ids), partition)
        writes.write(
            self.lake.registry,
            self.name,
            lambda target: write_arrow(target, [{"id": row[0], "name": partition}]),
            partition={"name": partition},
        )
        self.live = {each for each in self.live if each[1] != partition} | {row}

    @rule(partition=partitions)
    def retire(self, partition: str) -> None:
        self.lake.retire_partitions(self.name, [{"name": partition}])
        self.live = {each for each in self.live if each[1] != partition}

    @rule()
    def flush(self) -> None:
        self.lake.flush(self.name)
        self.note()

    @rule()
    def merge(self) -> None:
        self.lake.flush(self.name)
        self.note()
        merge_manifests(self.lake.registry, self.table.table_id)
        self.note()

    def snapshot(self, number: int) -> int:
        return list(self.made)[number % len(self.made)]

    def note(self) -> None:
        """Take the newest snapshot into the model: it has what is live."""
        current = self.lake.table(self.name).current_snapshot_id
        if current != self.current:
            assert current is not None
            self.made[current] = Made(frozenset(self.live), self.current)
            self.current = current

    # Names ------------------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.made)
    @rule(number=numbers, name=names, replace=st.booleans())
    def give_name(self, number: int, name: str, replace: bool) -> None:
        snapshot_id = self.snapshot(number)
        create = self.lake.create_branch if name.startswith("b") else self.lake.create_tag
        if not replace and self.names.get(name, snapshot_id) != snapshot_id:
            with pytest.raises(RefAlreadyExists):
                create(self.name, name, snapshot_id)
            return
        create(self.name, name, snapshot_id, replace=replace)
        self.names[name] = snapshot_id

    @precondition(lambda self: self.names)
    @rule(number=numbers)
    def take_name_away(self, number: int) -> None:
        name = sorted(self.names)[number % len(self.names)]
        (self.lake.drop_branch if name.startswith("b") else self.lake.drop_tag)(self.name, name)
        del self.names[name]

    # Going back and letting go ----------------------------------------------------------------------------------------
    @precondition(lambda self: self.made)
    @rule(number=numbers, by_name=st.booleans())
    def rollback(self, number: int, by_name: bool) -> None:
        self.flush()
        named = sorted(self.names) if by_name else []
        to: int | str = named[number % len(named)] if named else self.snapshot(number)
        result = self.lake.rollback(self.name, to)
        assert result.previous_snapshot_id == self.current
        self.current = self.names[to] if isinstance(to, str) else to
        self.live = set(self.made[self.current].rows)

    @precondition(lambda self: self.made)
    @rule(keep=st.integers(1, 3))
    def expire(self, keep: int) -> None:
        result = self.lake.expire_snapshots(self.name, timedelta(0) - timedelta(minutes=1), keep)
        kept: set[int] = set()
        for name, head in {**self.names, "main": self.current}.items():
            lineage = list(self.lineage(head))
            kept |= set(lineage[:1] if name.startswith("t") else lineage[:keep])
        gone = self.made.keys() - kept
        assert set(result.snapshots) == gone
        for snapshot_id in gone:
            del self.made[snapshot_id]
            with pytest.raises(SnapshotNotFound):
                self.lake.rollback(self.name, snapshot_id)
        self.note()  # the attempts have flushed

    def lineage(self, snapshot_id: int | None) -> list[int]:
        found = []
        while snapshot_id in self.made:
            assert snapshot_id is not None
            found.append(snapshot_id)
            snapshot_id = self.made[snapshot_id].parent
        return found

    @precondition(lambda self: self.made)
    @rule()
    def lose_metadata_and_repair(self) -> None:
        """Rows stay; snapshots and names were in what is gone."""
        self.flush()
        engine = self.lake.registry.engine(self.table.location)
        assert engine.delete([info.location for info in engine.list(self.table.location + "/metadata/")]) == []
        assert not self.lake.audit(self.name).ok
        result = self.lake.repair(self.name)
        assert result.rows == len(self.live)
        self.names, self.current = {}, result.snapshot_id
        self.made = {} if self.current is None else {self.current: Made(frozenset(self.live), None)}
        assert self.lake.audit(self.name).ok

    @rule()
    def clean(self) -> None:
        assert self.lake.clean().failed == []
        self.check()
        self.check_snapshots()
        assert_nothing_left_over(self.lake, self.name)

    # What must hold ---------------------------------------------------------------------------------------------------
    def check(self) -> None:
        found = self.lake.scan(self.name).read_all()
        assert Counter(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == Counter(self.live)
        table = self.lake.table(self.name)
        assert table.row_count == len(self.live)
        assert_exact(self.lake.registry, table)
        retained = {snapshot.snapshot_id for snapshot in self.lake.snapshots(self.name)}
        assert retained == set(self.made)
        assert table.current_snapshot_id == self.current
        if table.metadata_location is None:
            return
        document = StaticTable.from_metadata(table.metadata_location)
        assert {snapshot.snapshot_id for snapshot in document.metadata.snapshots} == retained
        named = {name: ref.snapshot_id for name, ref in document.metadata.refs.items()}
        assert named == {**self.names, **({"main": self.current} if self.current is not None else {})}

    def check_snapshots(self) -> None:
        """Each retained snapshot is read from its files, whatever has been deleted."""
        location = self.lake.table(self.name).metadata_location
        if location is None:
            return
        table = StaticTable.from_metadata(location)
        for snapshot_id, made in self.made.items():
            rows = table.scan(snapshot_id=snapshot_id).to_arrow()
            seen = zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)
            assert Counter(seen) == Counter(made.rows)

    def teardown(self) -> None:
        self.flush()
        self.check()
        self.clean()


@pytest.mark.timeout(600)
def test_any_history_of_snapshots_is_what_the_model_says(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, durable=False) as lake:
        machine = type("HistoryOfLake", (History,), {"lake": lake})
        settings = hypothesis.settings(
            max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        run_state_machine_as_test(machine, settings=settings)

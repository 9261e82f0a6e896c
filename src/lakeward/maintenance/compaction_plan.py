"""Which files of a table are worth merging: the rules of compaction, worked out from the registry's rows alone.

Small is what is under three quarters of the target size. Of a partition's small files the smallest ones are taken, up to the
first that is larger than all before it together: so a byte is rewritten a few times in its life, however often small files
arrive beside it, and a file that is nearly large enough is not written again for a handful of small ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

import msgspec

from lakeward.registry import Registry
from lakeward.tables import compaction, tables
from lakeward.tables.compaction import Candidates, PartitionId, SmallFile, State
from lakeward.tables.records.properties import (
    COMPACTION_ENABLED,
    COMPACTION_FILES,
    COMPACTION_SIZE,
    COMPACTION_SPECS,
    TARGET_FILE_SIZE,
)
from lakeward.tables.records.tables import Table, TableMetadata
from lakeward.tables.tables import Which, table_of

SMALL = 0.75  # of the target
LEAST_WEIGHT = 1 << 20  # bytes: to open a file costs about as much as to read so many
MAX_JOB_TARGETS = 16  # a job reads up to so many times the target
MAX_JOB_FILES = 2_000  # what one transaction swaps
MAX_JOB_GROUPS = 64  # a task has one file open for each partition


class Rules(msgspec.Struct, frozen=True):
    """What a table's properties say."""

    target: int = TARGET_FILE_SIZE.default  # bytes
    min_files: int = COMPACTION_FILES.default
    is_enabled: bool = COMPACTION_ENABLED.default
    rewrites_specs: bool = COMPACTION_SPECS.default


class Group(msgspec.Struct, frozen=True):
    """Files of one partition, in one state, that become `expected` new ones."""

    spec_id: int
    partition_key: str
    partition_path: str
    state: State
    files: list[SmallFile]
    expected: int
    why: str

    @property
    def bytes(self) -> int:
        """Of the files that it would merge."""
        return sum(file.file_size for file in self.files)


class Job(msgspec.Struct, frozen=True):
    """What one write makes and one transaction swaps: a large group, or the small groups of several partitions."""

    groups: list[Group]

    @property
    def state(self) -> State:
        """Of its files: landing (JSON lines), pending, or committed to a snapshot."""
        return self.groups[0].state

    @property
    def files(self) -> list[SmallFile]:
        """What it would merge."""
        return [file for group in self.groups for file in group.files]

    @property
    def bytes(self) -> int:
        """Of the files that it would merge."""
        return sum(group.bytes for group in self.groups)

    @property
    def expected(self) -> int:
        """How many files they should become."""
        return sum(group.expected for group in self.groups)


class Left(msgspec.Struct, frozen=True):
    """Small files that stay as they are, and why."""

    partition_path: str
    state: State
    files: int
    bytes: int
    why: str


class Plan(msgspec.Struct, frozen=True):
    table: Table
    metadata: TableMetadata
    rules: Rules
    jobs: list[Job]
    left: list[Left]


def rules_of(metadata: TableMetadata) -> Rules:
    """What a table's properties say of compaction. Raises InvalidInput: a property is not what it should be."""
    given = metadata.properties
    target = COMPACTION_SIZE.of(given)
    return Rules(
        TARGET_FILE_SIZE.of(given) if target is None else target,
        COMPACTION_FILES.of(given),
        COMPACTION_ENABLED.of(given),
        COMPACTION_SPECS.of(given),
    )


def plan(registry: Registry, name: Which, partitions: Collection[PartitionId] | None = None) -> Plan:
    """What `compact` would merge in a table (or in some of its partitions), and what it would leave, with the reasons. Only
    the registry is read.

    Raises:
        TableNotFound, InvalidName.
        InvalidSetting: a property is not what it should be.
    """
    table = table_of(registry, name)
    metadata = tables.metadata(registry, table)
    rules = rules_of(metadata)
    if not rules.is_enabled:
        return Plan(table, metadata, rules, [], [])
    candidates = compaction.candidates(registry, table, math.ceil(rules.target * SMALL), partitions)
    found = [each for some in candidates for each in groups_of(some, rules, metadata.spec_id)]
    jobs = jobs_of([each for each in found if isinstance(each, Group)], metadata.spec_id, rules)
    return Plan(table, metadata, rules, jobs, [each for each in found if isinstance(each, Left)])


# Groups -------------------------------------------------------------------------------------------------------------------
def groups_of(found: Candidates, rules: Rules, spec_id: int) -> Iterator[Group | Left]:
    """What to do with a partition's small files. `spec_id`: the table's current one, in which all is written.

    Files of an earlier spec stay where they are: in partitions of the current one they could become many more than they were.
    Where the table asks for it they are merged by the same rules as others. JSON lines become Parquet in any case.
    """
    by_state = sorted(found.files, key=lambda file: (compaction.state_of(file), file.file_id))
    for state, members in groupby(by_state, key=compaction.state_of):
        files = list(members)
        if state == "landing":
            yield from (_group(found, state, each, rules, "JSON lines become Parquet") for each in _cut(files, rules))
        elif found.has_deletes:
            yield _left(found, state, files, "the partition has files of deletes")
        elif found.spec_id != spec_id and not rules.rewrites_specs:
            why = f"of the earlier partition spec {found.spec_id}; {COMPACTION_SPECS.name}=true has them rewritten"
            yield _left(found, state, files, why)
        else:
            yield from _merges(found, state, files, rules)


def _merges(found: Candidates, state: State, files: Sequence[SmallFile], rules: Rules) -> Iterator[Group | Left]:
    chosen, rest = _smallest(files)
    if len(chosen) > 1:
        for part in _cut(sorted(chosen, key=lambda file: file.file_id), rules):
            yield _judged(found, state, part, rules)
    else:
        rest = [*chosen, *rest]
    if len(rest) > 1 or (rest and len(chosen) > 1):
        yield _left(found, state, rest, "larger than all smaller ones together: more to write than to gain")


def _smallest(files: Sequence[SmallFile]) -> tuple[list[SmallFile], list[SmallFile]]:
    ordered = sorted(files, key=lambda file: (file.file_size, file.file_id))
    before = 0
    for i, file in enumerate(ordered):
        weight = max(file.file_size, LEAST_WEIGHT)
        if i and weight > before:
            return ordered[:i], ordered[i:]
        before += weight
    return ordered, []


def _judged(found: Candidates, state: State, files: list[SmallFile], rules: Rules) -> Group | Left:
    size = sum(file.file_size for file in files)
    if len(files) < rules.min_files and size < rules.target:
        return _left(
            found, state, files, f"fewer than {rules.min_files} small files, and together below the target size"
        )
    group = _group(
        found, state, files, rules, f"small: {size // len(files):,} bytes on average, target {rules.target:,}"
    )
    if 2 * group.expected > len(files):
        return _left(found, state, files, f"would still be {group.expected} files")
    return group


def _group(found: Candidates, state: State, files: list[SmallFile], rules: Rules, why: str) -> Group:
    expected = max(1, round(sum(file.file_size for file in files) / rules.target))
    return Group(found.spec_id, found.partition_key, found.partition_path, state, files, expected, why)


def _left(found: Candidates, state: State, files: Sequence[SmallFile], why: str) -> Left:
    return Left(found.partition_path, state, len(files), sum(file.file_size for file in files), why)


def _cut(files: Sequence[SmallFile], rules: Rules) -> Iterator[list[SmallFile]]:
    """Runs of files that one job takes, in their order."""
    part: list[SmallFile] = []
    size = 0
    for file in files:
        if part and (size + file.file_size > MAX_JOB_TARGETS * rules.target or len(part) >= MAX_JOB_FILES):
            yield part
            part, size = [], 0
        part.append(file)
        size += file.file_size
    if part:
        yield part


# Jobs ---------------------------------------------------------------------------------------------------------------------
def jobs_of(groups: Sequence[Group], spec_id: int, rules: Rules) -> list[Job]:
    """Small groups share a job, up to the target size: Spark takes some time for a job, however small.

    A group of an earlier partition spec is a job of its own: its rows may go to several partitions of the current one.
    """
    jobs: list[Job] = []
    shared: dict[State, list[Group]] = {}
    for group in groups:
        if group.spec_id != spec_id or 2 * group.bytes > rules.target or group.expected > 1:
            jobs.append(Job([group]))
            continue
        open_ = shared.setdefault(group.state, [])
        if open_ and not _fits(open_, group, rules):
            jobs.append(Job(open_))
            open_ = shared[group.state] = []
        open_.append(group)
    return jobs + [Job(open_) for open_ in shared.values() if open_]


def _fits(there: Sequence[Group], group: Group, rules: Rules) -> bool:
    return (
        len(there) < MAX_JOB_GROUPS
        and sum(each.bytes for each in there) + group.bytes <= rules.target
        and sum(len(each.files) for each in there) + len(group.files) <= MAX_JOB_FILES
    )

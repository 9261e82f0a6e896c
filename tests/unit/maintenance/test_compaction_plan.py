"""Which files are merged, which are left, and why; that a plan carried out leaves nothing to do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidInput
from lakeward.maintenance import compaction_plan
from lakeward.maintenance.compaction_plan import Group, Job, Left, Rules, groups_of, jobs_of, rules_of
from lakeward.tables.compaction import Candidates, SmallFile
from lakeward.tables.records.tables import TableMetadata

MB = 1 << 20
RULES = Rules(target=128 * MB)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

_ids = itertools.count(1)


def file(size: int, *, kind: str = "parquet", snapshot: int | None = 1, key: str = "{}") -> SmallFile:
    number = next(_ids)
    return SmallFile(
        file_id=number, file_path=f"file:///f{number}", file_size=size, file_type=kind, partition_key=key, row_count=10,
        spec_id=0, snapshot_id=snapshot, intent_id=None,
    )  # fmt: skip


def found(files: Sequence[SmallFile], *, spec_id: int = 0, key: str = "{}", deletes: bool = False) -> Candidates:
    small = [each for each in files if each.file_size < RULES.target * compaction_plan.SMALL]
    return Candidates(spec_id, key, key, small, len(files), sum(each.file_size for each in files), deletes)


def split(files: Sequence[SmallFile], rules: Rules = RULES, **options: bool) -> tuple[list[Group], list[Left]]:
    made = list(groups_of(found(files, **options), rules, spec_id=0))  # type: ignore[arg-type]
    return [g for g in made if isinstance(g, Group)], [g for g in made if isinstance(g, Left)]


def test_many_small_files_become_one() -> None:
    ((group,), left) = split([file(MB) for _ in range(40)])
    assert (len(group.files), group.expected, left) == (40, 1, [])
    assert "1,048,576 bytes on average" in group.why


def test_files_of_an_earlier_partition_spec_are_merged_only_where_the_table_asks_for_it() -> None:
    small = [file(MB) for _ in range(40)]
    (left,) = groups_of(found(small, spec_id=0), RULES, spec_id=1)
    assert isinstance(left, Left) and (left.files, left.bytes) == (40, 40 * MB)
    assert left.why == "of the earlier partition spec 0; lakeward.compaction.rewrite-specs=true has them rewritten"
    (group,) = groups_of(found(small, spec_id=0), Rules(target=128 * MB, rewrites_specs=True), spec_id=1)
    assert isinstance(group, Group) and len(group.files) == 40


def test_json_lines_of_an_earlier_partition_spec_become_parquet_all_the_same() -> None:
    (group,) = groups_of(found([file(MB, kind="json")], spec_id=0), RULES, spec_id=1)
    assert isinstance(group, Group)


def test_a_few_small_files_wait_for_more() -> None:
    groups, (left,) = split([file(MB) for _ in range(4)])
    assert (groups, left.files, left.bytes) == ([], 4, 4 * MB)
    assert "fewer than 5" in left.why


def test_few_files_are_enough_where_they_fill_one() -> None:
    ((group,), _) = split([file(70 * MB), file(70 * MB)])
    assert (len(group.files), group.expected) == (2, 1)


def test_files_whose_number_would_not_be_halved_are_left() -> None:
    groups, (left,) = split([file(90 * MB) for _ in range(10)])
    assert (groups, left.why) == ([], "would still be 7 files")


def test_a_file_that_is_nearly_large_enough_is_not_written_again_for_a_handful_of_small_ones() -> None:
    big = file(90 * MB)
    ((group,), (left,)) = split([big, *(file(1_000) for _ in range(10))])
    assert big not in group.files
    assert (left.files, left.bytes) == (1, 90 * MB)


def test_pending_committed_and_landing_files_are_never_merged_together() -> None:
    files = [file(MB, snapshot=None) for _ in range(6)] + [file(MB) for _ in range(6)]
    groups, _ = split([*files, file(MB, kind="json", snapshot=None)])
    assert [(group.state, len(group.files)) for group in groups] == [("committed", 6), ("landing", 1), ("pending", 6)]


def test_a_partition_with_deletes_is_left_but_its_json_lines_are_not() -> None:
    groups, (left,) = split([*(file(MB) for _ in range(9)), file(MB, kind="json")], deletes=True)
    assert [group.state for group in groups] == ["landing"]
    assert left.why == "the partition has files of deletes"


def test_one_job_reads_no_more_than_sixteen_targets_and_two_thousand_files() -> None:
    groups, _ = split([file(10 * MB) for _ in range(500)])
    assert all(group.bytes <= 16 * RULES.target for group in groups)
    assert sum(len(group.files) for group in groups) == 500
    many, _ = split([file(100) for _ in range(4_500)])
    assert [len(group.files) for group in many] == [2_000, 2_000, 500]


def test_small_groups_share_jobs_up_to_the_target_and_large_ones_or_those_of_an_old_spec_have_their_own() -> None:
    small = [split([file(MB, key=f"{i}") for _ in range(30)])[0][0] for i in range(6)]
    (large,), _ = split([file(10 * MB) for _ in range(20)])
    old = Group(7, "{}", "", "committed", [file(MB)] * 5, 1, "")
    pending = Group(0, "{}", "", "pending", [file(MB, snapshot=None)] * 5, 1, "")
    jobs = jobs_of([*small, large, old, pending], 0, RULES)
    assert sorted(len(job.groups) for job in jobs) == [1, 1, 1, 2, 4]
    assert all(job.bytes <= RULES.target for job in jobs if len(job.groups) > 1)
    assert all(len({group.state for group in job.groups}) == 1 for job in jobs)
    assert Job([old]) in jobs


@given(st.lists(st.integers(1, 200 * MB), max_size=60))
def test_a_plan_that_is_carried_out_leaves_nothing_to_do_after_a_few_rounds(sizes: list[int]) -> None:
    """Each round halves at least what it touches, and rewrites no file for nothing."""
    there = [file(size) for size in sizes]
    for _ in range(12):
        groups, left = split(there)
        if not groups:
            return
        for group in groups:
            assert len(group.files) >= 2 * group.expected
            there = [each for each in there if each not in group.files]
            there += [file(group.bytes // group.expected) for _ in range(group.expected)]
        assert sum(each.file_size for each in there) <= sum(sizes)
        assert all(each.files >= 1 for each in left)
    raise AssertionError("it never ends")


def test_a_byte_is_rewritten_a_few_times_however_many_small_files_arrive() -> None:
    """5,000 files of 100 kB that arrive five at a time: their 500 MB are written fewer than 8 times over."""
    there: list[SmallFile] = []
    written = 0
    for _ in range(1_000):
        there += [file(100_000) for _ in range(5)]
        groups, _ = split(there)
        for group in groups:
            gone = {each.file_id for each in group.files}
            there = [each for each in there if each.file_id not in gone]
            there += [file(group.bytes // group.expected) for _ in range(group.expected)]
            written += group.bytes
    assert written < 8 * 500_000_000
    assert len(there) < 40


def metadata(**properties: str) -> TableMetadata:
    named = {f"lakeward.compaction.{key.replace('_', '-')}": value for key, value in properties.items()}
    return TableMetadata(
        table_id=1, metadata_version=1, schema_version=0, schema={}, spec_id=0, partition_by={}, sort_order_id=0,
        sort_by={}, properties=named, storage_engine="local", engine_config={}, format="parquet", compression="zstd",
        change="create", created_at=NOW,
    )  # fmt: skip


def test_the_rules_are_the_tables_own() -> None:
    assert rules_of(metadata()) == Rules(128 * MB, 5, True)
    assert rules_of(metadata(target_bytes="1000", min_files="2", enabled="FALSE")) == Rules(1000, 2, False)


@pytest.mark.parametrize(
    ("key", "value"), [("target_bytes", "0"), ("target_bytes", "big"), ("min_files", "1"), ("enabled", "yes")]
)
def test_a_property_that_makes_no_sense_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=key.replace("_", "-")):
        rules_of(metadata(**{key: value}))

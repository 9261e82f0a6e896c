"""Compaction of 1,000 small files of 60 kB from a fresh process, without Spark and with it, and what starting Spark alone takes.

Each is a process of its own over a copy of the same lake: the clock from its start to its end, and the processor's time of all that it
started. The part of `lake.compact` alone is told beside it.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy
import pyarrow as pa
from common import Options, Report, lake_in, main, median, seconds

NAME = "bench.rows"
FILES = 1_000
ROWS = 2_000  # three random doubles that do not compress, and an id: 60 kB
COLUMNS = {"id": "long", "a": "double", "b": "double", "c": "double"}
CONNECT = (
    "import sys, lakeward\nwith lakeward.connect('registry.db', 'warehouse', merge_in_process_bytes={limit}) as lake:\n"
)
COMPACT = (
    CONNECT
    + f"    done = lake.compact('{NAME}')\n    assert done.files_before == {FILES} and done.files_after == 1, done\n"
)
TELL = "import resource\nprint(done.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
PROGRAMS = {
    "without Spark": COMPACT.format(limit=64 << 20) + "assert 'pyspark' not in sys.modules\n" + TELL,
    "without Spark, sorted": COMPACT.format(limit=64 << 20) + "assert 'pyspark' not in sys.modules\n" + TELL,
    "by Spark": COMPACT.format(limit=0) + TELL,
    "starting Spark alone": CONNECT.format(limit=0) + "    lake.spark().range(1).count()\n",
}


def run(options: Options, report: Report) -> None:
    folder = options.folder.resolve()  # as the programs see it, whose paths are relative
    for kind, order in (("plain", []), ("sorted", ["a"])):
        _fill(folder / kind, order)
    for name, program in PROGRAMS.items():
        source = folder / ("sorted" if name.endswith("sorted") else "plain")
        rounds = [_run(program, source) for _ in range(options.pick(3, 7))]
        clock, processor, told = zip(*rounds, strict=True)
        note = "target 5" if name.startswith("without") else ""
        report.add(f"{FILES:,} files of 60 kB, {name}: a fresh process, p50", median(clock), "s", note)
        report.add(f"{name}: its processor time, p50", median(processor), "s")
        if told[0]:
            report.add(f"{name}: the job alone, p50", median([each[0] for each in told]), "s")
            report.add(f"{name}: the process' memory at most (without Java's)", max(each[1] for each in told), "MB")


def _fill(folder: Path, order: Sequence[str]) -> None:
    random = numpy.random.default_rng(1)
    with lake_in(folder, durable=False) as lake:
        lake.create_table(NAME, COLUMNS, sort_by=order)
        for number in range(FILES):
            columns = {name: random.random(ROWS) for name in ("a", "b", "c")}
            lake.append(NAME, pa.table({"id": numpy.arange(number * ROWS, (number + 1) * ROWS), **columns}))


def _run(program: str, source: Path) -> tuple[float, float, list[float]]:
    """Seconds by the clock, seconds of the processors, and what the program prints."""
    # A copy in the same place: tables know where they are.
    spare = source.with_name("spare")
    shutil.copytree(source, spare)
    printed: list[str] = []

    def work() -> None:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.extend(done.stdout.split())

    try:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        clock = seconds(work)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        shutil.rmtree(source)
        spare.rename(source)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, [float(each) for each in printed]


if __name__ == "__main__":
    main(run, __doc__)

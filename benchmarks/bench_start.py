"""How long a program takes to start, in processor time: the command, and a connection with an append of rows.

Each is a process of its own, beside one that only imports SQLAlchemy and Arrow, and finds its modules compiled.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

from common import Options, Report, main

BASE = "import sqlalchemy, pyarrow"
TABLES = "import sys; from lakeward.cli.main import run; sys.argv = ['lakeward', 'tables', '--registry', 'r.db', '--warehouse', 'w']; run()"
APPEND = "import lakeward\nwith lakeward.connect('r.db', 'w') as lake: lake.append('a.t', [{'id': 1, 'name': 'a'}])"
MAKE = "import lakeward\nwith lakeward.connect('r.db', 'w') as lake: lake.create_table('a.t', {'id': 'long', 'name': 'string'})"


def run(options: Options, report: Report) -> None:
    compiled = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    compiled["PYTHONPYCACHEPREFIX"] = str(options.folder / "compiled")

    def seconds(program: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", program], cwd=options.folder, env=compiled, check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    seconds(MAKE)
    programs = {"import sqlalchemy, pyarrow": BASE, "lakeward tables": TABLES, "connect, append a row": APPEND}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        seconds(program)
    for _ in range(options.pick(5, 15)):
        for name, program in programs.items():
            times[name].append(seconds(program))
    base = statistics.median(times["import sqlalchemy, pyarrow"])
    for name, found in times.items():
        taken = statistics.median(found)
        report.add(name, taken, "s", f"{taken / base:.2f} times the import")


if __name__ == "__main__":
    main(run, __doc__)

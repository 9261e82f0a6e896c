"""How long programs take to start, in processor time, and the modules that they load: commands, and a connection with an append.

Each is a process of its own, beside one that only imports SQLAlchemy and Arrow, and finds its modules compiled. Modules are
those that are loaded at its end, by the package that they belong to.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections import Counter

from common import Options, Report, main

COMMAND = (
    "import sys; from lakeward.cli.main import run\n"
    "sys.argv = ['lakeward', *{words}]\n"
    "try: run()\n"
    "except SystemExit as ended: assert not ended.code"
)
WHERE = ["--registry", "r.db", "--warehouse", "w"]
PROGRAMS = {
    "import sqlalchemy, pyarrow": "import sqlalchemy, pyarrow",
    "lakeward --help": COMMAND.format(words=["--help"]),
    "lakeward tables": COMMAND.format(words=["tables", *WHERE]),
    "lakeward status": COMMAND.format(words=["status", *WHERE]),
    "lakeward head a.t": COMMAND.format(words=["head", "a.t", *WHERE]),
    "lakeward scan a.t --filter 'id = 1'": COMMAND.format(words=["scan", "a.t", "--filter", "id = 1", *WHERE]),
    "connect, append a row": (
        "import lakeward\nwith lakeward.connect('r.db', 'w') as lake: lake.append('a.t', [{'id': 1, 'name': 'a'}])"
    ),
}
MAKE = "import lakeward\nwith lakeward.connect('r.db', 'w') as lake: lake.create_table('a.t', {'id': 'long', 'name': 'string'})"
TELL = "\nimport sys; print('\\n' + ' '.join(sys.modules), file=sys.stderr)"
LEAST = 10  # modules of a package that is named


def run(options: Options, report: Report) -> None:
    compiled = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    compiled["PYTHONPYCACHEPREFIX"] = str(options.folder / "compiled")

    def started(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=options.folder,
            env=compiled,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stderr

    def seconds(program: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started(program)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    started(MAKE)
    modules = {name: started(program + TELL).splitlines()[-1].split() for name, program in PROGRAMS.items()}
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(options.pick(5, 15)):
        for name, program in PROGRAMS.items():
            times[name].append(seconds(program))
    base = statistics.median(times["import sqlalchemy, pyarrow"])
    for name, found in times.items():
        taken = statistics.median(found)
        report.add(name, taken, "s", f"{taken / base:.2f} times the import")
    for name, loaded in modules.items():
        packages = Counter(module.partition(".")[0] for module in loaded)
        named = ", ".join(f"{package} {count}" for package, count in packages.most_common() if count >= LEAST)
        report.add(f"{name}: modules", len(loaded), "", named)


if __name__ == "__main__":
    main(run, __doc__)

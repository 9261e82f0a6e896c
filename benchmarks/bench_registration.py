"""How many files a second a durable SQLite registry takes, one by one and by the hundred, and whether that stays so."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import copies, folder, lake, median, one_file, register, show


def main() -> None:
    commits = 10_000 if "--full" in sys.argv else 3_000
    with folder() as at, lake(at) as opened:
        table, file = one_file(opened)
        alone: list[float] = []
        with_intent: list[float] = []
        for i in range(commits):
            took, intent = register(opened, table, copies(file, 1, i))
            alone.append(took)
            with_intent.append(took + intent)
        hundred = [register(opened, table, copies(file, 100, f"h{i}"))[0] for i in range(40)]
    early, late = median(alone[50:550]), median(alone[-500:])
    show(
        "Registration on SQLite, durable (a file of 20 columns)",
        {
            "registrations a second (median)": 1 / median(alone),
            "the same with the intent's own transaction": 1 / median(with_intent),
            f"cost of commits around {commits} / around 300": late / early,
            "files a second in batches of 100": 100 / median(hundred),
        },
    )


if __name__ == "__main__":
    main()

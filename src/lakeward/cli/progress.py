"""The one way in which commands say how far they are: bars on standard error, where that is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Step]:
    """Gives the function that moves the bars: a new text starts a bar of its own. Without a terminal nothing is shown."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    # A copy of the terminal: while a JVM starts, standard error points at its log.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=terminal)) as bars:
            tasks: dict[str, TaskID] = {}

            def step(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total)
                bars.update(tasks[what], completed=done, total=total)

            yield step

"""Where the JVM of a Spark session writes: it inherits this process's output, which belongs to the user."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def jvm_output_to(log: Path | None) -> Iterator[None]:
    """A JVM that starts in this block writes its output and errors to `log` for as long as it lives; None: nowhere.

    Python's own output goes on as before after the block; what is written in it, by any thread, goes to the log too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    target = os.open(os.devnull if log is None else log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)
        os.close(target)

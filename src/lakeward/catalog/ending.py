"""A program that serves ends within seconds, whatever hangs in it: all that it does may be killed at any time."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import NoReturn

from lakeward.background import Worker

EXIT_SECONDS = 3.0  # after the last request was answered or cut off


def end_within(seconds: float = EXIT_SECONDS, code: int = 0) -> None:
    """Have the process end by itself, with this exit code, if it has not ended in so many seconds."""
    Worker("lakeward-end", partial(_end, code)).wake(seconds)


def _end(code: int) -> NoReturn:
    """As if it were killed: recovery clears what was in hand."""
    print("lakeward: what was in hand took too long and was left; it is cleared by the next server", file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)

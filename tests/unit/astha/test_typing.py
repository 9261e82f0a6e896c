"""mypy proves that a component handles the records of all that it subscribes to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
from collections.abc import Sequence

from lakeward.astha import TABLE_FILES, TABLE_STATS, Astha, Event, Subscriber, TableFile, TableStats, WatchedTable


class Component:
    name = "compactor"
    version = "1"

    def get_subscribed_tables(self) -> Sequence[WatchedTable[TableFile | TableStats]]:
        return [TABLE_FILES, TABLE_STATS]

    def on_event(self, event: Event[{handled}]) -> None:
        {body}

    def on_health(self) -> bool:
        return True

    def on_refresh(self) -> None: ...


def use(astha: Astha) -> None:
    component: Subscriber[TableFile | TableStats] = Component()
    astha.register(component)
    astha.register(Component())
"""


def check(folder: Path, handled: str, body: str = "print(event.data.table_id)") -> str:
    """What mypy says of a component that handles these records; nothing if it is right."""
    source = folder / "component.py"
    source.write_text(SOURCE.format(handled=handled, body=body))
    root = Path(__file__).parents[3]
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(root / ".mypy_cache"),
    ]
    done = subprocess.run(
        [*command, "--config-file=", str(source)],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return "" if done.returncode == 0 else done.stdout


@pytest.mark.timeout(300)
def test_a_component_that_handles_what_it_subscribes_to_is_accepted(tmp_path: Path) -> None:
    assert check(tmp_path, "TableFile | TableStats") == ""


@pytest.mark.timeout(300)
def test_a_component_that_handles_less_than_it_subscribes_to_is_refused(tmp_path: Path) -> None:
    said = check(tmp_path, "TableFile")
    assert "Subscriber" in said and "TableStats" in said


@pytest.mark.timeout(300)
def test_a_field_that_not_every_record_has_is_refused(tmp_path: Path) -> None:
    said = check(tmp_path, "TableFile | TableStats", body="print(event.data.file_path)")
    assert '"TableStats" of "TableFile | TableStats" has no attribute "file_path"' in said

"""The demo's folder: fresh each time, and never somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from lakeward.errors import InvalidInput, WarehouseNotWritable

MARKER = ".lakeward-demo"  # says that all in the folder is the demo's, and may go
SETTINGS_FILE = """\
# Commands that are run in this folder find the demo's lakehouse by this file.
registry = "registry.db"
warehouse = "warehouse"
"""


def make_folder(folder: Path) -> Path:
    """An empty folder for a run, with its marker and settings; a former demo's is replaced.

    Raises:
        InvalidInput: the folder holds something that no demo made.
        WarehouseNotWritable: it cannot be made.
    """
    folder = folder.expanduser().absolute()
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if not (folder / MARKER).is_file():
                raise InvalidInput(
                    f"{folder} exists, and no demo made it; name another folder with --folder, or remove it yourself"
                )
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text("Made by `lakeward demo`, which replaces this folder when it runs again.\n")
        (folder / "lakeward.toml").write_text(SETTINGS_FILE)
    except OSError as error:
        raise WarehouseNotWritable(f"the demo's folder {folder} cannot be made: {error.strerror}") from error
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder that `make_folder` made."""
    if (folder / MARKER).is_file():
        shutil.rmtree(folder)

"""What moves rows by Arrow: checks, casts, files, scans. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.arrow import scan

__all__ = ["scan"]

__getattr__ = late.attributes(__name__)

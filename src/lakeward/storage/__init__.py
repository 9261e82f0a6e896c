"""Where bytes are kept: the path manager, and one engine per kind of storage. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.storage import local, s3

__all__ = ["local", "s3"]

__getattr__ = late.attributes(__name__)

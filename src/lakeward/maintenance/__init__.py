"""What keeps a lakehouse sound: recovery, clean-up, audit, repair, compaction. Its modules are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late

if TYPE_CHECKING:
    from lakeward.maintenance import audit, cleaner, compaction, compaction_plan, recovery, repair, status

__all__ = ["audit", "cleaner", "compaction", "compaction_plan", "recovery", "repair", "status"]

__getattr__ = late.attributes(__name__)

"""An open registry, and what every part stands on: leases, intents, queues, background work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import late
from lakeward.registry.handle import HasRegistry, Registry, open_registry, registry_of

if TYPE_CHECKING:
    from lakeward.registry import leases

__all__ = ["HasRegistry", "Registry", "leases", "open_registry", "registry_of"]

__getattr__ = late.attributes(__name__)

"""Recovery: what dead writers left is cleared away. Whoever still renews its lease is left alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lakeward.errors import LakewardError
from lakeward.logs import log
from lakeward.registry import Registry, abandoned
from lakeward.registry.abandoned import OrphanSweep
from lakeward.sums import Sum
from lakeward.tables.records.files import Intent


class RecoveryResult(Sum, frozen=True):
    intents: int = 0  # writes that were given up now
    swept: int = 0  # writes that were given up before, or registered, and whose prefix was swept for the last time
    objects: int = 0  # that were deleted
    failed: list[str] = msgspec.field(
        default_factory=list
    )  # prefixes that could not be swept; the next recovery tries again


def recover(registry: Registry) -> RecoveryResult:
    """Give up the writes whose lease has run out, and delete what they left below their prefixes.

    A write is marked first: from then on its registration fails, should its writer still live. Its prefix is swept again
    after `sweep_after_seconds`, for a writer that was only slow, and then the intent goes. Only this handle's warehouse is
    looked at: of another one in the same registry, it may lack the credentials.

    Where lost tasks of a registered write may have left more than was registered, that is deleted too: what is neither a file of
    a table, nor a segment, nor in quarantine.
    """
    given_up = _mark_expired(registry)
    due = abandoned.due(registry)
    objects, failed = 0, []
    for intent in [*given_up, *due]:
        try:
            objects += registry.engine(intent.prefix).delete_prefix(intent.prefix)
        except LakewardError as error:
            log.warning("sweep_failed", prefix=intent.prefix, error=str(error), code=error.code)
            failed.append(intent)
    swept = abandoned.finish(registry, [intent for intent in due if intent not in failed], failed)
    if given_up:
        log.info("writes_given_up", intents=len(given_up), objects=objects)
    return RecoveryResult(len(given_up), swept, objects, [intent.prefix for intent in failed]) + _sweep_orphans(
        registry
    )


def expired(registry: Registry) -> RecoveryResult:
    """What `recover` would do now: the objects are listed, and stay."""
    found, due, sweeps = abandoned.expired(registry)
    objects = sum(1 for intent in (*found, *due) for _ in registry.engine(intent.prefix).list(intent.prefix))
    objects += sum(len(each) for each in _orphans(registry, sweeps).values())
    return RecoveryResult(intents=len(found), swept=len(due) + len(sweeps), objects=objects)


def _mark_expired(registry: Registry) -> list[Intent]:
    marked: list[Intent] = []
    if shortened := abandoned.shorten(registry):
        log.warning("leases_of_a_clock_that_was_ahead_shortened", intents=shortened)
    while True:
        found = abandoned.mark_batch(registry)
        marked += found
        if len(found) < abandoned.BATCH:
            return marked


# What lost tasks of registered writes left ----------------------------------------------------------------------------------
def _sweep_orphans(registry: Registry) -> RecoveryResult:
    swept = objects = 0
    failed: list[str] = []
    while True:
        due, now = abandoned.due_sweeps(registry)
        done: list[OrphanSweep] = []
        for sweep, orphans in _orphans(registry, due).items():
            if kept := registry.engine(sweep.prefix).delete(orphans, below=registry.below):
                log.warning("sweep_failed", prefix=sweep.prefix, error=kept[0].reason)
            else:
                done.append(sweep)
            objects += len(orphans) - len(kept)
        swept += abandoned.finish_sweeps(registry, done, now)
        failed += [sweep.prefix for sweep in due if sweep not in done]
        if len(due) < abandoned.BATCH or len(done) < len(due):  # what failed is due still, and would be met again
            break
    if objects:
        log.info("orphans_deleted", objects=objects)
    return RecoveryResult(swept=swept, objects=objects, failed=failed)


def _orphans(registry: Registry, sweeps: Sequence[OrphanSweep]) -> dict[OrphanSweep, list[str]]:
    """The objects below each prefix that belong to nobody; prefixes that cannot be listed are left out."""
    there: dict[OrphanSweep, list[str]] = {}
    for sweep in sweeps:
        try:
            there[sweep] = [info.location for info in registry.engine(sweep.prefix).list(sweep.prefix)]
        except LakewardError as error:
            log.warning("sweep_failed", prefix=sweep.prefix, error=str(error), code=error.code)
    owned = abandoned.owned(registry, [location for each in there.values() for location in each])
    for sweep, locations in there.items():
        orphans = [each for each in locations if each not in owned]
        if orphans and len(orphans) == len(locations):
            # None of the write's own files: were they listed under another spelling, all would seem to be nobody's.
            log.warning("prefix_not_swept", prefix=sweep.prefix, objects=len(orphans))
            orphans = []
        there[sweep] = orphans
    return there

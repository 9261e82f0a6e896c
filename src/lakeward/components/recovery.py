"""Recovery: what dead writers left is cleared away. Whoever still renews its lease is left alone."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from lakeward.errors import LakewardError
from lakeward.logs import log
from lakeward.model.files import Intent
from lakeward.registry import Registry
from lakeward.store import dialect, intents
from lakeward.store.retry import retried

BATCH = 100


class RecoveryResult(msgspec.Struct, frozen=True):
    intents: int = 0  # writes that were given up now
    swept: int = 0  # writes that were given up before, and whose prefix was swept for the last time
    objects: int = 0  # that were deleted
    failed: list[str] = []  # prefixes that could not be swept; the next recovery tries again


def recover(registry: Registry) -> RecoveryResult:
    """Give up the writes whose lease has run out, and delete what they left below their prefixes.

    A write is marked first: from then on its registration fails, should its writer still live. Its prefix is swept again
    after `sweep_after_seconds`, for a writer that was only slow, and then the intent goes. Only this handle's warehouse is
    looked at: of another one in the same registry, it may lack the credentials.
    """
    given_up = _mark_expired(registry)
    due = _due(registry)
    objects, failed = 0, []
    for intent in [*given_up, *due]:
        try:
            objects += registry.engine(intent.prefix).delete_prefix(intent.prefix)
        except LakewardError as error:
            log.warning("sweep_failed", prefix=intent.prefix, error=str(error), code=error.code)
            failed.append(intent)
    swept = _finish(registry, [intent for intent in due if intent not in failed], failed)
    if given_up:
        log.info("writes_given_up", intents=len(given_up), objects=objects)
    return RecoveryResult(
        intents=len(given_up), swept=swept, objects=objects, failed=[intent.prefix for intent in failed]
    )


def expired(registry: Registry) -> RecoveryResult:
    """What `recover` would do now: the objects are listed, and stay."""
    with registry.database.read() as connection:
        now = dialect.now(connection)
        found = intents.expired(connection, registry.below, now, limit=None)
        due = intents.to_sweep(connection, registry.below, now)
    objects = sum(1 for intent in (*found, *due) for _ in registry.engine(intent.prefix).list(intent.prefix))
    return RecoveryResult(intents=len(found), swept=len(due), objects=objects)


def _mark_expired(registry: Registry) -> list[Intent]:
    marked: list[Intent] = []
    if shortened := _shorten(registry):
        log.warning("leases_of_a_clock_that_was_ahead_shortened", intents=shortened)
    while True:
        found = _mark_batch(registry)
        marked += found
        if len(found) < BATCH:
            return marked


@retried
def _shorten(registry: Registry) -> int:
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        return intents.shorten_impossible(connection, registry.below, now, registry.settings.lease_seconds)


@retried
def _mark_batch(registry: Registry) -> list[Intent]:
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        later = now + timedelta(seconds=registry.settings.sweep_after_seconds)
        found = intents.expired(connection, registry.below, now, BATCH, lock=True)
        for intent in found:
            intents.mark_recovered(connection, intent.intent_id, now, later)
        return found


def _due(registry: Registry) -> list[Intent]:
    with registry.database.read() as connection:
        return intents.to_sweep(connection, registry.below, dialect.now(connection))


@retried
def _finish(registry: Registry, swept: list[Intent], failed: list[Intent]) -> int:
    """Forget the writes whose last sweep is done; those that failed are due again at once."""
    if not swept and not failed:
        return 0
    forgotten = 0
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        wait = timedelta(seconds=registry.settings.sweep_after_seconds)
        for intent in sorted([*failed, *swept], key=lambda each: each.intent_id):  # as another recovery does
            if intent in failed:
                intents.sweep_at(connection, intent.intent_id, now)
            # One that failed at first may have been swept too early to be the last time.
            elif intents.forget(connection, intent.intent_id, now - wait):
                forgotten += 1
            else:
                intents.sweep_at(connection, intent.intent_id, now + wait)
    return forgotten

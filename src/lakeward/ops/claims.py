"""Claims of records that are handed out to one worker at a time: each has a number, and the outcome of an old one is refused."""

from __future__ import annotations

from datetime import datetime

from lakeward.errors import StatusConflict


def check(what: str, claim: int | None, *, current: int | None, until: datetime | None, by: str, now: datetime) -> None:
    """Check that an outcome is that of the current claim, or that there is none.

    Args:
        what: the record, as messages name it.
        claim: the number that the outcome comes with.
        current, until, by: the record's claim, None where nobody works on it, and who has it until when.

    Raises:
        StatusConflict: the claim is not current, or the outcome names none while one holds.
    """
    if claim is None:
        if current is not None and until is not None and until > now:
            raise StatusConflict(
                f"{what} is claimed{by} until {until}; give that claim's number, or wait until it has run out"
            )
    elif claim != current:
        raise StatusConflict(
            f"the claim {claim} of {what} is not current: it has run out, or the record failed again; nothing was changed"
        )

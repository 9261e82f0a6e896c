"""Who may ask: a bearer token, the same for everyone so far."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from fastapi import Request

from lakeward.errors import NotAuthorized

_SCHEME = "bearer "


def token_check(token: str | None) -> Callable[[Request], None]:
    """The check that each request of the catalog passes; with no token, everybody passes.

    Raises (the check):
        NotAuthorized: no token was sent, or another one.
    """

    def check(request: Request) -> None:
        if token is None:
            return
        sent = request.headers.get("authorization", "")
        if not sent.lower().startswith(_SCHEME):
            raise NotAuthorized("this server asks for a token; send it as 'Authorization: Bearer <token>'")
        # In constant time, so that the time of an answer tells nothing about the token.
        if not hmac.compare_digest(sent[len(_SCHEME) :].strip().encode(), token.encode()):
            raise NotAuthorized("the token is not this server's; look at how it was started, or at lake.spark_conf()")

    return check

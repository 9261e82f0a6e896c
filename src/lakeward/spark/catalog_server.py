"""Whether a catalog's server answers: `lakeward serve`, or one that a lake serves itself."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence

from lakeward.errors import InvalidSetting, ServerUnavailable

SECONDS = 5.0  # that a server has to answer


def answers(url: str) -> bool:
    """Whether a server answers there, whatever it says."""
    if not url.startswith(("http://", "https://")):
        return False
    try:
        with urllib.request.urlopen(url.rstrip("/") + "/health", timeout=SECONDS):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def first_of(server_url: str) -> str:
    """The first that answers of the servers that the setting `server_url` names, separated by commas; one alone is not asked.

    Raises:
        ServerUnavailable: none answers.
        InvalidSetting: it names none.
    """
    urls: Sequence[str] = [url.strip() for url in server_url.split(",") if url.strip()]
    if not urls:
        raise InvalidSetting(f"server_url={server_url!r} names no server; leave it out, or give http://host:port")
    if len(urls) == 1:
        return urls[0]
    for url in urls:
        if answers(url):
            return url
    raise ServerUnavailable(
        f"none of the servers of server_url answers: {', '.join(urls)}; start `lakeward serve` on one of them"
    )

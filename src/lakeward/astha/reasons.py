"""What an error says, in words that the registry can keep."""

from __future__ import annotations

MAX_CHARACTERS = 4_000


def reason(error: BaseException) -> str:
    """Its type and message, without what PostgreSQL or JSON refuse (NUL, lone surrogates), and not endlessly long."""
    try:
        said = str(error)
    except Exception:
        said = "(its message cannot be shown)"
    text = f"{type(error).__name__}: {said[:MAX_CHARACTERS]}"
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()

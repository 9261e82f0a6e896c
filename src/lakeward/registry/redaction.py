"""What is stored for people to read holds no secrets: they become '***' on the way in.

Values are judged by the names that they stand under, texts by the shapes that secrets have in URLs, headers, connection
strings, command lines and SQL. Where in doubt, too much goes rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

HIDDEN = "***"

# As parts of a name whose letters and digits alone are looked at, in lower case.
_NAMES = (
    *(
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "secret",
        "token",
        "credential",
        "authorization",
        "cookie",
        "jwt",
    ),
    *("apikey", "accesskey", "privatekey", "accountkey", "sharedkey", "signingkey", "encryptionkey", "masterkey"),
    *("authkey", "sslkey", "signature", "jaas", "bearer", "keytab", "sessionid", "clientkey", "saskey"),
)
_WHOLE_NAMES = frozenset({"pwd", "pass", "auth", "sig", "pin", "otp", "sas", "pw", "kennwort"})
_COUNTS = ("count", "length", "size", "limit", "ttl", "seconds", "expiresin", "used")  # max_token_count is no secret

_WORDS = (
    r"(?:pass[_-]?(?:word|wd|phrase|code)|pwd|secret|token|credential|jaas|jwt|signature|sas[_-]?key|keytab"
    r"|(?:api|access|private|account|shared|signing|encryption|master|auth|ssl|client)[_-]?(?:access[_-]?)?key)"
)
_VALUE = r"(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|''|[^'\\])*'|[\[({][^\n]*|\S+)"
_SCHEMES = r"(?:bearer|basic|digest|negotiate|token|apikey|aws4-hmac-sha256)"

Replacement = str | Callable[[re.Match[str]], str]


def _shape(
    pattern: str, replacement: Replacement = rf"\1{HIDDEN}", flags: int = 0
) -> tuple[re.Pattern[str], Replacement]:
    return re.compile(pattern, re.IGNORECASE | flags), replacement


_SHAPES: list[tuple[re.Pattern[str], Replacement]] = [
    # Private keys, whole or cut off
    _shape(
        r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----).*?(-----END [A-Z0-9 ]*-----|\Z)", rf"\1{HIDDEN}\2", re.DOTALL
    ),
    # Headers
    _shape(r"((?:set-)?cookie[\"']?\s*[:=]\s*)[^\n]+"),
    _shape(rf"(authorization[\"']?\s*[:=]\s*[\"']?)(?:{_SCHEMES}\s+)?[^\s\"']+[^\n\"']*"),
    _shape(r"(\bbearer\s+)[A-Za-z0-9._~+/=-]{6,}"),
    # Not of words such as 'Basic information'
    (re.compile(r"\b([Bb]asic\s+)[A-Za-z0-9+/](?=[A-Za-z0-9+/]*[A-Z0-9=])[A-Za-z0-9+/]{5,}={0,2}"), rf"\1{HIDDEN}"),
    # User info of URLs, whatever is in the password; and without a scheme
    _shape(r"(://)[^\s:/@]*:\S*@", rf"\1{HIDDEN}@"),
    _shape(r"(://)[^\s/@]*@", rf"\1{HIDDEN}@"),
    _shape(r"((?:thin:|oci:|sqlplus\s+))[\w$#\"]+/\S+@", rf"\1{HIDDEN}@"),
    _shape(r"(\b[\w.+%-]+:)[^\s@:/]+@(?=[\w\[])", rf"\1{HIDDEN}@"),
    # A line of .pgpass, of .netrc
    _shape(r"((?<![\w:])[\w.*-]+:\d{2,5}:[\w*-]+:[\w*-]+:)\S+"),
    _shape(r"(\blogin\s+\S+\s+password\s+)\S+"),
    # XML, SQL, command lines
    _shape(rf"(<[\w:.-]*{_WORDS}[\w.-]*[^>]*>)[^<]+(?=</)"),
    _shape(rf"(\bidentified\s+(?:with\s+\S+\s+)?by\s+(?:password\s+)?){_VALUE}"),
    _shape(r"(\bpassword\s+)'(?:''|[^'])*'"),
    _shape(rf"(--?[\w-]*{_WORDS}[\w-]*[\s=]+){_VALUE}"),
    _shape(r"((?:\s-u|--user|--proxy-user)[\s=]*[^\s:]+:)\S+"),
    _shape(r"(\b(?:mysql|mariadb)\w*\b[^\n]*?\s-p)\S+"),
    # name=value, "name": "value", name => value, name is value
    _shape(rf"([\w.-]*{_WORDS}[\w.-]*\\?[\"']?\s*(?:=>|:=|[:=])\s*(?:{_SCHEMES}\s+)?)(?:\\\"[^\"]*\\\"|{_VALUE})"),
    _shape(rf"([\w.-]*{_WORDS}[\w.-]*\s+(?:is|was)\s*:?\s+){_VALUE}"),
    _shape(rf"((?:[?&;,\s]|^)(?:sig|sas|pin|otp|auth|pass|pw)=){_VALUE}"),
    _shape(rf"([?&]key=){_VALUE}"),
    _shape(rf"([\"'](?:pw|sig|sas|pin|otp|auth|pass)[\"']\s*[:=,]\s*){_VALUE}"),
    # A name and its value side by side: ['--token', 'value']
    _shape(rf"([\"']-*[\w.-]*(?:{_WORDS}|authorization|cookie)[\w.-]*[\"']\s*,\s*){_VALUE}"),
    # Tokens that are known by how they begin
    (
        re.compile(
            r"\b(?:(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{10,}|xox[a-z]-[\w-]{8,}"
            r"|AIza[\w-]{20,}|ya29\.[\w-]{8,}|(?:sk|rk|pk)[-_](?:live|test|proj|ant)?[-_]?[\w-]{14,}|SG\.[\w-]{8,}\.[\w-]{8,}"
            r"|npm_\w{16,}|pypi-\w{16,}|dop_v1_\w{16,}|hv[sb]\.[\w-]{8,}|dapi[0-9a-f]{16,}|eyJ[\w-]{6,}\.[\w-]+\.?[\w-]*)"
        ),
        HIDDEN,
    ),
]
# What any of the shapes needs, so that most texts are looked at once.
_HINT = re.compile(
    rf"{_WORDS}|://|@|BEGIN |cookie|authorization|bearer|basic|identified|--?u|:\d+:|mysql|mariadb|\b(?:sig|sas|pin|otp|auth|pass|pw|key)[\"']?\s*[=:,]"
    r"|AKIA|ASIA|AROA|AIDA|gh[pousr]_|github_|glpat|xox|AIza|ya29|[srp]k[-_]|SG\.|npm_|pypi-|dop_|hv[sb]\.|dapi|eyJ",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    plain = "".join(c for c in name.lower() if c.isalnum())
    if plain in _WHOLE_NAMES:
        return True
    return any(word in plain for word in _NAMES) and not plain.endswith(_COUNTS)


def text(value: str, known: Iterable[str] = ()) -> str:
    """A text without what looks like secrets, and without those that are known."""
    for secret in known:
        value = value.replace(secret, HIDDEN)
    if _HINT.search(value) is None:
        return value
    for pattern, replacement in _SHAPES:
        value = pattern.sub(replacement, value)
    return value


def document(value: Any, known: Collection[str] = ()) -> Any:
    """A copy of a value of any shape without secrets: neither under names that say so, nor in its texts."""
    if isinstance(value, str):
        return text(value, known)
    if isinstance(value, (bytes, bytearray, memoryview)):
        shown = bytes(value).decode("latin-1")
        return bytes(value) if text(shown, known) == shown else HIDDEN
    if isinstance(value, Mapping):
        return {
            text(key, known) if isinstance(key, str) else key: _hidden(each)
            if is_secret_name(str(key))
            else document(each, known)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        items = _items(value, known)
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, (set, frozenset)):
        return frozenset(document(each, known) for each in value)
    if isinstance(value, BaseException):
        return text(f"{type(value).__name__}: {value}", known)
    return value


def _items(values: list[Any] | tuple[Any, ...], known: Collection[str]) -> list[Any]:
    """Of a list, where a name and its value may stand side by side, as headers and command lines have them."""
    items = [document(each, known) for each in values]
    for place, name in enumerate(values[:-1]):
        if isinstance(name, str) and is_secret_name(name) and (len(values) == 2 or name.startswith("-")):
            items[place + 1] = _hidden(values[place + 1])
    return items


def _hidden(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else HIDDEN


def columns(record: Any, names: Collection[str]) -> tuple[Any, list[str]]:
    """A record without the values of these columns, wherever in it they stand, and those values as texts.

    Names are compared without regard to case.
    """
    if not names:
        return record, []
    wanted = {name.lower() for name in names}
    found: list[str] = []
    return _without(record, wanted, found), sorted({each for each in found if len(each) >= 3}, key=len, reverse=True)


def _without(value: Any, wanted: set[str], found: list[str]) -> Any:
    if isinstance(value, Mapping):
        kept = {}
        for key, each in value.items():
            if str(key).lower() in wanted and each is not None:
                found.extend(_texts(each))
                kept[key] = HIDDEN
            else:
                kept[key] = _without(each, wanted, found)
        return kept
    if isinstance(value, (list, tuple)):
        items = [_without(each, wanted, found) for each in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [text for each in value for text in _texts(each)]
    if isinstance(value, bytes):
        return [value.decode("utf-8", "replace"), repr(value)[2:-1]]
    return [str(value)]


def storable(value: str | None, known: Iterable[str] = ()) -> str | None:
    """A text as the databases hold it: redacted, with NUL and lone surrogates written out."""
    if value is None:
        return None
    shown = text(str(value), known).replace("\0", "\\x00")
    return shown.encode("utf-8", "backslashreplace").decode()

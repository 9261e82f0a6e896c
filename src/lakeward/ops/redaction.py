"""What is stored for people to read holds no secrets: they become '***' on the way in.

Values are judged by the names that they stand under, texts by the shapes that secrets have in URLs, headers, connection
strings, command lines and SQL. Where in doubt, too much goes rather than too little.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from lakeward import lossless_json
from lakeward.secret_names import is_named_secret, is_secret_name

HIDDEN = "***"

# What repeats in a pattern repeats a bounded number of times where it may begin anywhere: texts of a megabyte are not rare.
_WORDS = (
    r"(?:pass[_-]?(?:word|wort|wd|phrase|code)|pwd|secret|token|credential|jaas|jwt|signature|sas[_-]?key|keytab"
    r"|kennwort|contrase(?:n|ñ)a|mot[_-]?de[_-]?passe|senha|code[_-]?verifier|csrf|sess(?:ion)?[_-]?id"
    r"|(?:api|access|private|account|shared|signing|encryption|master|auth|ssl|ssh|license|client)[_-]?(?:access[_-]?)?key)"
)
_TAIL = r"[\w.-]{0,80}"
_VALUE = (
    r"(?:[|>\\][+-]?[ \t]*\n\s*\S+"  # on the next line, as YAML and shells have it
    r"|\\+\"[^\"]*\\+\"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|''|[^'\\])*'|[\[({][^\n]*|\S+)"
)
_SCHEMES = r"(?:bearer|basic|digest|negotiate|token|apikey|aws4-hmac-sha256)"
_IS = r"\s{0,20}(?:=>|:=|==?>?|:)\s{0,200}"

Replacement = str | Callable[[re.Match[str]], str]


class _Shape(NamedTuple):
    pattern: str
    replacement: Replacement
    flags: int

    def hidden_in(self, value: str) -> str:
        return _compiled(self.pattern, self.flags).sub(self.replacement, value)


_compiled = cache(re.compile)  # at first use: most programs never show a secret, and all would wait for these


def _shape(pattern: str, replacement: Replacement = rf"\1{HIDDEN}", flags: int = 0) -> _Shape:
    return _Shape(pattern, replacement, re.IGNORECASE | flags)


_SHAPES = [
    # Private keys, whole or cut off
    _shape(
        r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----).*?(-----END [A-Z0-9 ]{0,60}-----|\Z)",
        rf"\1{HIDDEN}\2",
        re.DOTALL,
    ),
    _shape(r"(Private-Lines:\s{0,9}\d{1,5}\s{1,9})(?:[A-Za-z0-9+/=]+\s{0,2})+"),
    # Headers
    _shape(r"((?:set-)?cookie[\"']?\s{0,20}[:=]\s{0,20})[^\n]+"),
    _shape(rf"(authorization[\"']?\s{{0,20}}[:=]\s{{0,20}}[\"']?)(?:{_SCHEMES}\s{{1,20}})?[^\s\"']+[^\n\"']*"),
    _shape(r"(\bx-auth\b\s{0,20}[:=]\s{0,20})\S+"),
    _shape(r"(\b(?:bearer|apikey)\s{1,20})[A-Za-z0-9._~+/=-]{6,}"),
    # Not of words such as 'Basic information'
    _Shape(
        r"\b([Bb]asic\s{1,20})[A-Za-z0-9+/](?=[A-Za-z0-9+/]*[A-Z0-9=])[A-Za-z0-9+/]{5,}={0,2}",
        rf"\1{HIDDEN}",
        0,
    ),
    # User info of URLs, whatever is in the password; and without a scheme
    _shape(r"(://)[^\s:/@]{0,200}:\S{0,2000}@", rf"\1{HIDDEN}@"),
    _shape(r"(://)[^\s/@]{0,2000}@", rf"\1{HIDDEN}@"),
    _shape(r"((?:thin:|oci:|sqlplus\s{1,20}))[\w$#\"]{1,200}/\S{1,200}@", rf"\1{HIDDEN}@"),
    _shape(r"(\b[\w.+%-]{1,200}:)[^\s@:/]{1,2000}@(?=[\w\[])", rf"\1{HIDDEN}@"),
    # Addresses that are secrets themselves
    _shape(r"(hooks\.slack\.com/[a-z]{1,20}/)[^\s\"']+"),
    _shape(r"(/api/webhooks/\d{1,30}/)[\w-]+"),
    _shape(r"(\bbot\d{6,20}:)[\w-]{16,}"),
    # A line of .pgpass, of .netrc
    _shape(r"((?<![\w:])[\w.*-]{1,255}:\d{2,5}:[\w*-]{1,128}:[\w*-]{1,128}:)\S+"),
    _shape(r"(\blogin\s{1,20}\S{1,200}\s{1,20}password\s{1,20})\S+"),
    # XML, and a name and its value in two fields
    _shape(rf"(<[\w:.-]{{0,80}}{_WORDS}{_TAIL}[^>]{{0,200}}>)[^<]+(?=</)"),
    _shape(rf"({_WORDS}{_TAIL}\s{{0,20}}</\w{{1,40}}>\s{{0,200}}<value>)[^<]+"),
    _shape(rf"({_WORDS}{_TAIL}\\*[\"']?[\s,;]{{1,200}}\\*[\"']?value\\*[\"']?{_IS}){_VALUE}"),
    # SQL, command lines
    _shape(
        rf"(\bidentified\s{{1,20}}(?:with\s{{1,20}}\S{{1,80}}\s{{1,20}})?by\s{{1,20}}(?:password\s{{1,20}})?){_VALUE}"
    ),
    _shape(r"(\b(?:password|secret)\s{1,20})(?:'(?:''|[^'])*'|\"[^\"]*\")"),
    _shape(rf"(\bset\s{{1,20}}password\b[^\n=]{{0,200}}=\s{{0,20}}){_VALUE}"),
    _shape(rf"((?:(?<=[\s\"'=(\[,])|^)-[\w-]{{0,80}}{_WORDS}[\w-]{{0,80}}(?:\s{{1,20}}|=)){_VALUE}"),
    _shape(r"((?:\s-u|--user|--proxy-user)[\s=]{0,20}[^\s:]{1,200}:)\S+"),
    _shape(r"(\b(?:mysql|mariadb)\w{0,40}\b[^\n]{0,200}?\s-p)\S+"),
    _shape(r"(\bsshpass\s{1,20}-p\s{0,20})\S+"),
    _shape(r"(\b(?:redis-cli|docker\s{1,20}login)\b[^\n]{0,200}?\s-[ap]\s{1,20})\S+"),
    # name=value, "name": "value", name => value, name is value
    _shape(rf"({_WORDS}{_TAIL}\\*[\"']?{_IS}(?:{_SCHEMES}\s{{1,20}})?){_VALUE}"),
    _shape(rf"({_WORDS}{_TAIL}\s{{1,20}}(?:is|was)\s{{0,20}}:?\s{{1,20}}){_VALUE}"),
    _shape(rf"((?:[?&;,\s\"']|^)(?:sig|sas|pin|otp|auth|pass|pw)=){_VALUE}"),
    _shape(rf"((?:[_-]|\b(?:db|pg|my|ftp|smtp|mail|ldap|user|ssh))(?:pass|pw|otp|pin)\\*[\"']?{_IS}){_VALUE}"),
    _shape(rf"([?&]key=){_VALUE}"),
    _shape(rf"([\"'](?:pw|sig|sas|pin|otp|auth|pass)[\"']\s{{0,20}}[:=,]\s{{0,20}}){_VALUE}"),
    _shape(r"(\b(?:PIN|OTP):\s{1,20})\S+"),
    # A name and its value side by side: ['--token', 'value']
    _shape(
        rf"([\"']-{{0,2}}[\w.-]{{0,80}}(?:{_WORDS}|authorization|cookie){_TAIL}[\"']\s{{0,20}},\s{{0,20}})(?![\"']\w{{1,80}}[\"']\s?:){_VALUE}"
    ),
    # Tokens that are known by how they begin
    _Shape(
        (
            r"\b(?:(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|gl[a-z]{2,4}-[\w-]{10,}"
            r"|xox[a-z]-[\w-]{8,}|AIza[\w-]{20,}|ya29\.[\w-]{8,}|1//0[\w-]{20,}|GOCSPX-[\w-]{8,}"
            r"|(?:sk|rk|pk)[-_](?:live|test|proj|ant)?[-_]?[\w-]{14,}|whsec_\w{16,}|SG\.[\w-]{8,}\.[\w-]{8,}"
            r"|npm_\w{16,}|pypi-\w{16,}|hf_\w{16,}|dckr_pat_[\w-]{8,}|shp[a-z]{2}_\w{16,}|gl(?:sa|c)_\w{16,}|ATATT\w{16,}"
            r"|lin_api_\w{16,}|ntn_\w{16,}|dp\.[a-z]{2}\.[\w.-]{16,}|pscale_\w{8,}|NRAK-\w{8,}|sq0[a-z]{3}-[\w-]{8,}"
            r"|dop_v1_\w{16,}|hv[sb]\.[\w-]{8,}|dapi[0-9a-f]{16,}|AGE-SECRET-KEY-1\w{8,}"
            r"|eyJ[\w-]{6,}\.[\w-]+\.?[\w-]*)"
        ),
        HIDDEN,
        0,
    ),
]
# What any of the shapes needs, so that most texts are looked at once.
_HINT = re.compile(
    rf"{_WORDS}|://|@|BEGIN |Private-L|cookie|authorization|bearer|basic|apikey|x-auth|identified|--?u|:\d{{2,5}}:|mysql|mariadb"
    r"|sshpass|redis-cli|docker|hooks\.slack|webhooks|bot\d{6}|(?:sig|sas|pin|otp|auth|pass|pw|key)\\*[\"']?\s?[=:,]"
    r"|AKIA|ASIA|AROA|AIDA|gh[pousr]_|github_|gl[a-z]{2,4}[-_]|glc_|xox|AIza|ya29|1//0|GOCSPX|[srp]k[-_]|whsec|SG\.|npm_|pypi-|hf_"
    r"|dckr_|shp[a-z]{2}_|ATATT|lin_api|ntn_|dp\.|pscale|NRAK|sq0|dop_|hv[sb]\.|dapi|AGE-SECRET|eyJ",
    re.IGNORECASE,
)
# The values that SQLAlchemy shows with a statement stand apart from the names of their columns.
_PARAMETERS = re.compile(r"(\[parameters: )[^\n]*")
_SECRET_WORD = re.compile(_WORDS, re.IGNORECASE)


def text(value: str, known: Iterable[str] = ()) -> str:
    """A text without what looks like secrets, and without those that are known. One that holds secrets in percent-encoding
    comes back decoded."""
    for secret in known:
        value = value.replace(secret, HIDDEN)
    if _HINT.search(value) is not None:
        value = _reshaped(value)
    decoded = value
    for _ in range(2 if "%" in value else 0):  # encoded twice, where a URL is part of another's query
        decoded = unquote(decoded)
        if _HINT.search(decoded) is not None and (shown := _reshaped(decoded)) != decoded:
            return shown
    return value


def _reshaped(value: str) -> str:
    if "[parameters: " in value and _SECRET_WORD.search(value) is not None:
        value = _PARAMETERS.sub(rf"\1{HIDDEN}]", value)
    for shape in _SHAPES:
        value = shape.hidden_in(value)
    return value


def document(value: Any, known: Collection[str] = (), depth: int = 0) -> Any:
    """A copy of a value of any shape without secrets: neither under names that say so, nor in its texts.

    What has a shape of its own, such as a settings object, becomes its repr, as it would when it is stored.
    """
    if isinstance(value, str):
        return text(value, known)
    if isinstance(value, (bytes, bytearray, memoryview)):
        shown = bytes(value).decode("latin-1")
        return bytes(value) if text(shown, known) == shown else HIDDEN
    if depth > lossless_json.MAX_DEPTH:
        return f"(nested deeper than {lossless_json.MAX_DEPTH} levels)"
    if isinstance(value, Mapping):
        return _mapping(value, known, depth)
    if isinstance(value, (list, tuple)):
        items = _items(value, known, depth)
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, (set, frozenset)):
        return frozenset(document(each, known, depth + 1) for each in value)
    if isinstance(value, BaseException):
        return text(f"{type(value).__name__}: {value}", known)
    if isinstance(value, enum.Enum):
        return document(value.value, known, depth + 1)
    return value if lossless_json.can_keep(value) else text(repr(value), known)


def _mapping(value: Mapping[Any, Any], known: Collection[str], depth: int) -> dict[Any, Any]:
    made = {}
    for key, each in value.items():
        shown = document(key, known, depth + 1) if isinstance(key, (str, tuple, frozenset)) else key
        made[shown] = _hidden(each) if _hides(str(key), each) else document(each, known, depth + 1)
    # {"name": "password", "value": ...}
    named = next((value[each] for each in ("name", "key", "Name", "Key") if isinstance(value.get(each), str)), None)
    if named is not None and is_secret_name(named):
        made |= {each: _hidden(value[each]) for each in ("value", "Value") if each in value}
    return made


def _hides(name: str, value: Any) -> bool:
    if not is_named_secret(name):
        return False
    is_text = isinstance(value, (str, bytes)) and not value.isdigit()
    return is_text or is_secret_name(name)


def _items(values: list[Any] | tuple[Any, ...], known: Collection[str], depth: int) -> list[Any]:
    """Of a list, where a name and its value may stand side by side, as headers and command lines have them."""
    items = [document(each, known, depth + 1) for each in values]
    for place, name in enumerate(values[:-1]):
        if isinstance(name, str) and is_secret_name(name) and (len(values) == 2 or name.startswith("-")):
            items[place + 1] = _hidden(values[place + 1])
    if 1 < len(items) < _MAX_COMMAND and all(isinstance(each, str) and each and " " not in each for each in items):
        line = text(" ".join(items)).split(" ")
        items = line if len(line) == len(items) else items
    return items


_MAX_COMMAND = 200  # words of a command line, which have a meaning together


def _hidden(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else HIDDEN


def columns(record: Any, names: Collection[str], what: str = "record_data") -> tuple[Any, list[str]]:
    """A record without the values of these columns, wherever in it they stand, and those values as texts.

    Names are compared without regard to case.

    Raises InvalidInput: the record cannot be kept.
    """
    if not names:
        return record, []
    lossless_json.dumps(record, what)
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

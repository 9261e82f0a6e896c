"""The path manager: the one place where locations are made.

A location is a text such as 'file:///data/lake/sales/orders-1f0c9a2e/data/<intent>/00001.parquet' or 's3://bucket/...'.
It is never percent-encoded, because the engines do not agree on decoding: Hadoop and PyIceberg take the text literally,
others decode it. The few characters on which they differ are refused in a warehouse's location; below it every part is
reduced to plain ASCII. Nothing is ever read back out of a location, and locations are compared as strings.
"""

from __future__ import annotations

import os
import re
import unicodedata

from lakeward.errors import InvalidInput, InvalidSetting

LOCAL_SCHEME = "file://"
S3_SCHEME = "s3://"
MAX_SLUG_LENGTH = 64  # characters of one part; with the uuid's eight well below the 255 bytes of a file's name

# '#' and '?' end the path for PyIceberg, '%' is decoded by some readers, the rest are patterns or escapes for Spark and DuckDB.
REFUSED_CHARACTERS = "#?%*[]{}\\"

_SLUG = re.compile(r"[^A-Za-z0-9_-]+")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_INTENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_OF_A_WRITE = re.compile(r"/(data|metadata)/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/")
_EXTENSION = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def warehouse_location(text: str) -> str:
    """The location of a warehouse, without a slash at its end, from what a person wrote.

    A folder's path (relative ones from the working folder, '~' too) or 'file:///path' becomes 'file:///absolute/path';
    's3://bucket/prefix' stays. Symbolic links are not resolved.

    Raises:
        InvalidSetting: another scheme, a bucket name that S3 does not allow, or a character that engines read differently.
    """
    if not text.strip():
        raise InvalidSetting("the warehouse is empty; give a folder or a location such as 's3://bucket/prefix'")
    scheme = _SCHEME.fullmatch(text)
    if scheme is None or not (text[len(scheme[1]) :].startswith(("://", ":/"))):
        return _checked(LOCAL_SCHEME + os.path.abspath(os.path.expanduser(text)), text)
    if scheme[1] == "file":
        path = text.removeprefix(LOCAL_SCHEME) if text.startswith(LOCAL_SCHEME) else scheme[2]
        if not path.startswith("/"):
            raise InvalidSetting(f"warehouse {text!r} names a host; write file:///absolute/path")
        return _checked(LOCAL_SCHEME + os.path.abspath(path), text)
    if scheme[1] == "s3":
        return _checked(_s3_location(text), text)
    raise InvalidSetting(
        f"warehouse {text!r} has the scheme {scheme[1]!r}; use a folder, file:///path or s3://bucket/prefix"
    )


def table_location(warehouse: str, namespace: tuple[str, ...], name: str, table_uuid: str) -> str:
    """Where a new table's files go: '<warehouse>/<namespace>/<name>-<uuid8>', without a slash at its end.

    Names that reduce to the same text still differ by the first eight characters of the table's UUID. The levels of a
    namespace are one folder, joined by a dot, which no slug holds: a table's folder never stands inside another table's.
    """
    levels = ".".join(slug(level) for level in namespace)
    return f"{warehouse.rstrip('/')}/{levels}/{slug(name)}-{_uuid8(table_uuid)}"


def topic_location(warehouse: str, name: str, topic_uuid: str) -> str:
    """The folder of a topic, fixed when it is made."""
    return f"{warehouse.rstrip('/')}/topics/{slug(name)}-{_uuid8(topic_uuid)}"


def write_prefix(table_location: str, intent_id: str) -> str:
    """The folder of one declared write, ending in '/'."""
    return f"{table_location}/data/{_intent(intent_id)}/"


def flush_prefix(table_location: str, intent_id: str) -> str:
    """The folder of the metadata that one flush makes, ending in '/'."""
    return f"{metadata_prefix(table_location)}{_intent(intent_id)}/"


def metadata_prefix(table_location: str) -> str:
    """The folder of all metadata of a table, ending in '/'."""
    return f"{table_location}/metadata/"


def is_of_a_write(table_location: str, location: str) -> bool:
    """Whether an object stands in the folder that a write or a flush of Lakeward's own has, or had."""
    return _OF_A_WRITE.match(location.removeprefix(table_location)) is not None


def file_name(number: int, extension: str) -> str:
    """The name of the file with this number in its write: '00007.parquet'. `extension` without its dot, 'json.zst' too."""
    if number < 0 or not _EXTENSION.fullmatch(extension):
        raise InvalidInput(f"no file can be named by {number} and {extension!r}; give a number from 0 on and letters")
    return f"{number:05d}.{extension}"


def slug(text: str) -> str:
    """A text as one part of a location: [A-Za-z0-9_-], beginning with a letter or digit, 1 to 64 characters.

    Accents are dropped where a letter is left without them. It says what is inside to a person, and means nothing.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    # Spark and Hadoop hide what begins with '_' or '.'.
    return _SLUG.sub("-", plain).lstrip("-_")[:MAX_SLUG_LENGTH].rstrip("-") or "x"


def local_path(location: str) -> str:
    """The path of the operating system behind a 'file://' location.

    Raises:
        InvalidInput: the location has another scheme.
    """
    if not location.startswith(LOCAL_SCHEME + "/"):
        raise InvalidInput(f"{location!r} is no local location; it must begin with file:///")
    return location[len(LOCAL_SCHEME) :]


def bucket_and_key(location: str) -> tuple[str, str]:
    """('bucket', 'key/of/it') of an 's3://' location; the key is empty for the bucket itself.

    Raises:
        InvalidInput: the location has another scheme or no bucket.
    """
    bucket, _, key = location.removeprefix(S3_SCHEME).partition("/")
    if not location.startswith(S3_SCHEME) or not bucket:
        raise InvalidInput(f"{location!r} is no S3 location; it must be s3://bucket/key")
    return bucket, key


def _s3_location(text: str) -> str:
    bucket, _, prefix = text.removeprefix(S3_SCHEME).partition("/")
    if not text.startswith(S3_SCHEME) or not _BUCKET.fullmatch(bucket):
        raise InvalidSetting(
            f"warehouse {text!r} names no bucket; write s3://bucket/prefix with 3 to 63 small letters, digits, '-', '.'"
        )
    parts = prefix.rstrip("/").split("/") if prefix.rstrip("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidSetting(f"warehouse {text!r} has an empty part, '.' or '..' in its prefix; write it without")
    return S3_SCHEME + "/".join([bucket, *parts])


def _checked(location: str, text: str) -> str:
    bad = [c for c in location if c in REFUSED_CHARACTERS or ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF]
    if bad:
        raise InvalidSetting(
            f"warehouse {text!r} holds {bad[0]!r}, which engines read in different ways; choose a path without any of "
            f"{' '.join(REFUSED_CHARACTERS)} and control characters"
        )
    if location == LOCAL_SCHEME + "/":
        raise InvalidSetting(f"warehouse {text!r} is the root folder; choose a folder of its own")
    return location


def _uuid8(table_uuid: str) -> str:
    short = table_uuid.replace("-", "")[:8].lower()
    if not re.fullmatch(r"[0-9a-f]{8}", short):
        raise InvalidInput(f"{table_uuid!r} is no UUID")
    return short


def _intent(intent_id: str) -> str:
    if not _INTENT.fullmatch(intent_id):
        raise InvalidInput(f"intent id {intent_id!r} cannot name a folder; use letters, digits, '-' and '_'")
    return intent_id

"""Properties of tables: each that means something here, or to Iceberg's engines, is declared once, with its values and default.

A property is a text. What it is declared to be is checked when it is set, so that no value fails later in somebody's append;
whoever reads one asks its declaration: `TARGET_FILE_SIZE.of(properties)`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakeward.errors import InvalidInput
from lakeward.names import is_storable
from lakeward.secret_names import check_no_secrets

T_co = TypeVar("T_co", covariant=True)

INT = (1 << 31) - 1
LONG = (1 << 63) - 1
OWN = "lakeward."  # begins the names of properties that are Lakeward's alone


@dataclass(frozen=True)
class Kind(Generic[T_co]):
    """What a property's text may be. `read` gives its value, and raises ValueError for a text that is none of its."""

    what: str  # 'a whole number, 1 or more'
    read: Callable[[str], T_co]


@dataclass(frozen=True)
class Property(Generic[T_co]):
    """One property. A name that ends in a dot stands for all that begin with it and go on with a column's name.

    `section` is that of the reference page which lists it; `meaning` is None for what Iceberg's engines alone read.
    """

    name: str
    kind: Kind[T_co]
    default: T_co
    section: str
    meaning: str = ""
    shown_default: str | None = None  # on the reference page, where the default depends on something

    def of(self, properties: Mapping[str, str | None]) -> T_co:
        """Its value among a table's properties, the default where it is not set. Raises InvalidInput: it is none of its kind."""
        text = properties.get(self.name)
        return self.default if text is None else self.value(text)

    def value(self, text: str, name: str | None = None) -> T_co:
        """The value of a text. Raises InvalidInput: it is none of its kind."""
        try:
            return self.kind.read(text)
        except ValueError:
            raise InvalidInput(
                f"property {name or self.name}={text[:200]!r} cannot be used: it must be {self.kind.what}"
            ) from None


# Kinds ------------------------------------------------------------------------------------------------------------------
def whole(least: int, most: int = LONG) -> Kind[int]:
    """A whole number in a range."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    limit = f"{least:,} or more, and below 2^63" if most == LONG else f"from {least:,} to {most:,}"
    return Kind(f"a whole number, {limit}", read)


def number(above: float, below: float = float("inf")) -> Kind[float]:
    """A number between two, which are no values themselves."""

    def read(text: str) -> float:
        if not text.isascii() or not above < (value := float(text)) < below:
            raise ValueError
        return value

    return Kind(f"a number above {above:g}" + ("" if below == float("inf") else f" and below {below:g}"), read)


def one_of(*words: str) -> Kind[str]:
    """One of some words, whose case does not matter."""

    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    shown = [f"`{word}`" for word in words]
    return Kind(f"{', '.join(shown[:-1])} or {shown[-1]}", read)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _some_text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _metrics(text: str) -> str:
    width = re.fullmatch(r"truncate\(([0-9]{1,9})\)", text, re.IGNORECASE | re.ASCII)
    if not (width and int(width[1]) > 0) and text.lower() not in ("none", "counts", "full"):
        raise ValueError
    return text


def _name_mapping(text: str) -> Any:
    """Iceberg's name mapping (specification, 'Name Mapping Serialization'). Raises ValueError."""

    def check(fields: Any) -> None:
        if not isinstance(fields, list):
            raise ValueError
        for field in fields:
            names = field.get("names") if isinstance(field, dict) else None
            field_id = field.get("field-id", 0) if isinstance(field, dict) else None
            is_id = isinstance(field_id, int) and not isinstance(field_id, bool) and 0 <= field_id <= INT
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not is_id:
                raise ValueError
            if field.get("fields") is not None:
                check(field["fields"])

    mapping = json.loads(text)
    check(mapping)
    return mapping


FLAG = Kind("`true` or `false`", _flag)
TEXT = Kind("any text but an empty one", _some_text)
NAMES = Kind("names, by comma", _names)
METRICS = Kind("`none`, `counts`, `truncate(16)` with any length, or `full`", _metrics)
NAME_MAPPING = Kind("a name mapping of Iceberg, as JSON", _name_mapping)
PARQUET_CODEC = one_of("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
AVRO_CODEC = one_of("gzip", "zstd", "snappy", "uncompressed")
ORC_CODEC = one_of("zlib", "zstd", "snappy", "lz4", "lzo", "none")

# What Lakeward goes by --------------------------------------------------------------------------------------------------
WRITING, ROWS, MANIFESTS = "Writing files", "Rows that do not fit", "Manifests"
SNAPSHOTS, COMPACTION, ENGINES = "Snapshots", "Compaction", "Read by engines alone"

TARGET_FILE_SIZE = Property(
    "write.target-file-size-bytes",
    whole(1),
    128 << 20,
    WRITING,
    "bytes at which a file is closed and the next one begun",
)
PARQUET_COMPRESSION: Property[str | None] = Property(
    "write.parquet.compression-codec", PARQUET_CODEC, None, WRITING,
    "what engines write with; Lakeward's own writes go by the table's compression", "the table's compression",
)  # fmt: skip
COMPRESSION_LEVEL: Property[int | None] = Property(
    "write.parquet.compression-level", whole(-(1 << 17), INT), None, WRITING,
    "of the table's compression: `zstd` has -131072 to 22, `gzip` 1 to 9, `lz4` 1 to 12, and the others none", "the codec's",
)  # fmt: skip
DISTRIBUTION_MODE = Property(
    "write.distribution-mode", one_of("none", "hash", "range"), "none", WRITING, "how Spark deals rows to tasks"
)
FANOUT = Property(
    "write.spark.fanout.enabled", FLAG, True, WRITING, "`false`: each task of Spark sorts its rows by partition first"
)
METRICS_COLUMNS = Property(
    "write.metadata.metrics.max-inferred-column-defaults", whole(0, INT), 100_000, WRITING,
    "columns that Spark's files have statistics for",
)  # fmt: skip
FOOTERS = Property(
    "lakeward.footers", one_of("always", "on-first-use", "never"), "always", WRITING,
    "whether the registry keeps Parquet footers",
)  # fmt: skip

INVALID_ROWS = Property(
    "lakeward.invalid-rows", one_of("refuse", "dead-letter"), "refuse", ROWS,
    "`dead-letter`: rows that break the table's schema go to the dead letters, and the others are written; `refuse`: one such "
    "row refuses the whole write",
)  # fmt: skip
INVALID_ROWS_MAX = Property(
    "lakeward.invalid-rows.max", whole(1), 1_000, ROWS,
    "rows of one write that may go there; with more of them the write is refused",
)  # fmt: skip
EVOLVE = Property(
    "lakeward.evolve", one_of("none", "add", "widen"), "none", ROWS,
    "`add`: columns that the table lacks, in Arrow data, Parquet files and DataFrames, are added to it, as optional ones, before "
    "the rows are written; `widen`: so they are, and types of numbers become wider where Iceberg allows it",
)  # fmt: skip
REDACTED_COLUMNS: Property[tuple[str, ...]] = Property(
    "lakeward.redact-columns", NAMES, (), ROWS, "columns whose values dead letters do not hold"
)

MANIFEST_MERGE = Property("commit.manifest-merge.enabled", FLAG, True, MANIFESTS, "`false`: never")
MANIFEST_COUNT = Property(
    "commit.manifest.min-count-to-merge", whole(2, INT), 20, MANIFESTS,
    "how many of about a size are many. Iceberg's writers, which merge while they commit, take 100",
)  # fmt: skip
MANIFEST_SIZE = Property(
    "commit.manifest.target-size-bytes", whole(1), 8 << 20, MANIFESTS,
    "bytes of a merged manifest at most; manifests of half of it and more are left as they are",
)  # fmt: skip

SNAPSHOT_MODE = Property(
    "lakeward.snapshot.mode", one_of("auto", "on-query"), "auto", SNAPSHOTS,
    "`on-query`: a snapshot only for a query, or by hand",
)  # fmt: skip
SNAPSHOT_SECONDS: Property[float | None] = Property(
    "lakeward.snapshot.every-seconds", number(0), None, SNAPSHOTS,
    "a snapshot once what is pending has waited so long",
)  # fmt: skip
SNAPSHOT_FILES: Property[int | None] = Property(
    "lakeward.snapshot.every-files", whole(1), None, SNAPSHOTS, "a snapshot once so many files are pending"
)
SNAPSHOT_BYTES: Property[int | None] = Property(
    "lakeward.snapshot.every-bytes", whole(1), None, SNAPSHOTS, "the same by their bytes"
)
SNAPSHOT_ROWS: Property[int | None] = Property(
    "lakeward.snapshot.every-rows", whole(1), None, SNAPSHOTS, "the same by their rows"
)
MAX_SNAPSHOT_AGE: Property[int | None] = Property(
    "history.expire.max-snapshot-age-ms", whole(0), None, SNAPSHOTS,
    "how old a snapshot gets before an expiry takes it; where it is set, `lakeward serve` expires by itself", "432000000",
)  # fmt: skip
MIN_SNAPSHOTS: Property[int | None] = Property(
    "history.expire.min-snapshots-to-keep", whole(1, INT), None, SNAPSHOTS,
    "snapshots that an expiry leaves in any case", "1",
)  # fmt: skip
MAX_REF_AGE: Property[int | None] = Property(
    "history.expire.max-ref-age-ms", whole(0), None, SNAPSHOTS,
    "how old a tag or branch gets before an expiry drops it",
)  # fmt: skip

METADATA_COMPRESSION = Property(
    "write.metadata.compression-codec", one_of("none", "gzip"), "gzip", SNAPSHOTS,
    "of the metadata files; `none` for a reader that does not know `.gz.metadata.json`",
)  # fmt: skip

COMPACTION_ENABLED = Property(
    "lakeward.compaction.enabled", FLAG, True, COMPACTION, "`false`: the table's files are left as they are"
)
COMPACTION_SIZE: Property[int | None] = Property(
    "lakeward.compaction.target-bytes", whole(1), None, COMPACTION,
    "bytes of a file that is large enough", "`write.target-file-size-bytes`",
)  # fmt: skip
COMPACTION_FILES = Property(
    "lakeward.compaction.min-files", whole(2), 5, COMPACTION,
    "small files that a partition has at least before they are merged",
)  # fmt: skip
COMPACTION_SPECS = Property(
    "lakeward.compaction.rewrite-specs", FLAG, False, COMPACTION,
    "`true`: small files of an earlier partition spec are merged too, into the current one",
)  # fmt: skip

# What Iceberg's engines alone read (TableProperties of its Java library) ------------------------------------------------
_RETRY_MS, _SIZE, _INT_SIZE = whole(0), whole(1), whole(1, INT)
_ISOLATION, _CHANGE_MODE = one_of("serializable", "snapshot"), one_of("copy-on-write", "merge-on-read")
_DEALT, _FORMAT = one_of("none", "hash", "range"), one_of("parquet", "avro", "orc")
_PLANNING, _LEVEL = one_of("auto", "local", "distributed"), whole(-(1 << 17), INT)

_PARQUET_OF_ENGINES: dict[str, Kind[Any]] = {
    "row-group-size-bytes": _INT_SIZE,
    "row-group-check-min-record-count": _INT_SIZE,
    "row-group-check-max-record-count": _INT_SIZE,
    "row-group-size-track-uncompressed": FLAG,
    "page-size-bytes": _INT_SIZE,
    "page-row-limit": _INT_SIZE,
    "page-version": one_of("v1", "v2"),
    "dict-size-bytes": _INT_SIZE,
}
_ORC_OF_ENGINES: dict[str, Kind[Any]] = {
    "stripe-size-bytes": _SIZE,
    "block-size-bytes": _SIZE,
    "vectorized.batch-size": _INT_SIZE,
    "compression-codec": ORC_CODEC,
    "compression-strategy": one_of("speed", "compression"),
}
_AVRO_OF_ENGINES: dict[str, Kind[Any]] = {"compression-codec": AVRO_CODEC, "compression-level": _LEVEL}
_OF_DELETES = ("row-group-size-track-uncompressed",)  # what files of deletes have no property for

_OF_ENGINES: dict[str, Kind[Any]] = {
    "commit.retry.num-retries": whole(0, INT),
    "commit.retry.min-wait-ms": whole(0, INT),
    "commit.retry.max-wait-ms": whole(0, INT),
    "commit.retry.total-timeout-ms": whole(0, INT),
    "commit.status-check.num-retries": whole(0, INT),
    "commit.status-check.min-wait-ms": _RETRY_MS,
    "commit.status-check.max-wait-ms": _RETRY_MS,
    "commit.status-check.total-timeout-ms": _RETRY_MS,
    "write.format.default": _FORMAT,
    "write.delete.format.default": _FORMAT,
    "write.delete.target-file-size-bytes": _SIZE,
    **{f"write.parquet.{name}": kind for name, kind in _PARQUET_OF_ENGINES.items()},
    **{f"write.delete.parquet.{name}": kind for name, kind in _PARQUET_OF_ENGINES.items() if name not in _OF_DELETES},
    "write.delete.parquet.compression-codec": PARQUET_CODEC,
    "write.delete.parquet.compression-level": _LEVEL,
    "write.parquet.shred-variants": FLAG,
    "write.parquet.variant-inference-buffer-size": _INT_SIZE,
    "write.parquet.bloom-filter-max-bytes": _INT_SIZE,
    "write.parquet.bloom-filter-adaptive-enabled": FLAG,
    "write.parquet.bloom-filter-enabled.column.": FLAG,
    "write.parquet.bloom-filter-fpp.column.": number(0, 1),
    "write.parquet.bloom-filter-ndv.column.": _SIZE,
    "write.parquet.stats-enabled.column.": FLAG,
    "write.parquet.dict-encoding-enabled.column.": FLAG,
    **{f"write.avro.{name}": kind for name, kind in _AVRO_OF_ENGINES.items()},
    **{f"write.delete.avro.{name}": kind for name, kind in _AVRO_OF_ENGINES.items()},
    **{f"write.orc.{name}": kind for name, kind in _ORC_OF_ENGINES.items()},
    **{f"write.delete.orc.{name}": kind for name, kind in _ORC_OF_ENGINES.items()},
    "write.orc.bloom.filter.columns": NAMES,
    "write.orc.bloom.filter.fpp": number(0, 1),
    "write.manifest.compression-codec": AVRO_CODEC,
    "write.manifest.compression-level": _LEVEL,
    "write.metadata.previous-versions-max": whole(0, INT),
    "write.metadata.delete-after-commit.enabled": FLAG,
    "write.metadata.metrics.default": METRICS,
    "write.metadata.metrics.column.": METRICS,
    "write.metadata.path": TEXT,
    "write.data.path": TEXT,
    "write.folder-storage.path": TEXT,
    "write.object-storage.path": TEXT,
    "write.object-storage.enabled": FLAG,
    "write.object-storage.partitioned-paths": FLAG,
    "write.location-provider.impl": TEXT,
    "write.summary.partition-limit": whole(0, INT),
    "write.wap.enabled": FLAG,
    "write.upsert.enabled": FLAG,
    "write.delete.granularity": one_of("file", "partition"),
    "write.delete.isolation-level": _ISOLATION,
    "write.update.isolation-level": _ISOLATION,
    "write.merge.isolation-level": _ISOLATION,
    "write.delete.mode": _CHANGE_MODE,
    "write.update.mode": _CHANGE_MODE,
    "write.merge.mode": _CHANGE_MODE,
    "write.delete.distribution-mode": _DEALT,
    "write.update.distribution-mode": _DEALT,
    "write.merge.distribution-mode": _DEALT,
    "write.spark.accept-any-schema": FLAG,
    "write.spark.auto-schema-evolution.enabled": FLAG,
    "write.spark.advisory-partition-size-bytes": _SIZE,
    "read.split.target-size": _SIZE,
    "read.split.metadata-target-size": _SIZE,
    "read.split.planning-lookback": _INT_SIZE,
    "read.split.open-file-cost": whole(0),
    "read.split.adaptive-size.enabled": FLAG,
    "read.parquet.vectorization.enabled": FLAG,
    "read.parquet.vectorization.batch-size": _INT_SIZE,
    "read.orc.vectorization.enabled": FLAG,
    "read.orc.vectorization.batch-size": _INT_SIZE,
    "read.data-planning-mode": _PLANNING,
    "read.delete-planning-mode": _PLANNING,
    "identifier-fields.rely": FLAG,
    "schema.name-mapping.default": NAME_MAPPING,
    "compatibility.snapshot-id-inheritance.enabled": FLAG,
    "engine.hive.enabled": FLAG,
    "engine.hive.lock-enabled": FLAG,
    "gc.enabled": FLAG,
}  # fmt: skip

# Where the thing has another place than a property.
_REFUSED = {
    "format-version": "give format_version when the table is made",
    **dict.fromkeys(
        ("uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary", "current-snapshot-timestamp-ms"),
        "Iceberg keeps the name for what the table's metadata says itself",
    ),
    **dict.fromkeys(
        ("current-schema", "default-partition-spec", "default-sort-order"),
        "Iceberg keeps the name; change the schema, the partition spec or the sort order itself",
    ),
    **dict.fromkeys(
        ("encryption.key-id", "encryption.data-key-length"), "no file is encrypted here; let the storage encrypt"
    ),
}

PROPERTIES: dict[str, Property[Any]] = {
    each.name: each
    for each in (
        *[found for found in globals().values() if isinstance(found, Property)],
        *[Property(name, kind, None, ENGINES) for name, kind in _OF_ENGINES.items()],
    )
}

# The config of topics ---------------------------------------------------------------------------------------------------
TOPICS = "Topics"
SEGMENT_BYTES = Property(
    "segment.bytes",
    TARGET_FILE_SIZE.kind,
    TARGET_FILE_SIZE.default,
    TOPICS,
    "bytes at which a segment's file is closed",
)
SEGMENT_COMPRESSION = Property(
    "compression.type", one_of("zstd", "snappy", "gzip", "lz4", "none", "uncompressed"), "zstd", TOPICS, "of segments"
)
STRICT_RETENTION = Property(
    "retention.strict", FLAG, False, TOPICS, "`true`: records are deleted by age alone, whoever has not read them"
)
TOPIC_CONFIG: dict[str, Property[Any]] = {
    each.name: each for each in (SEGMENT_BYTES, SEGMENT_COMPRESSION, STRICT_RETENTION)
}

# The levels that a codec has, and pyarrow's and Spark's writers take; the others have none.
_LEVELS = {"zstd": (-(1 << 17), 22), "gzip": (1, 9), "lz4": (1, 12)}


def find(name: str) -> Property[Any] | None:
    """The declaration of a property; None for one that nobody here knows."""
    if (found := PROPERTIES.get(name)) is not None:
        return found
    return next((p for prefix, p in PROPERTIES.items() if prefix.endswith(".") and name.startswith(prefix)), None)


def check_texts(properties: Mapping[str, Any]) -> None:
    """Refuse names and values that are no texts, and secrets. None for a value removes one. Raises InvalidInput."""
    check_no_secrets("property", {str(name): value for name, value in properties.items()})
    for name, value in properties.items():
        for text in (name, value):
            if text is not None and (not isinstance(text, str) or not is_storable(text)):
                raise InvalidInput(
                    f"property {name!r} is a {type(value).__name__}: names and values are texts, without NUL and surrogates"
                )


def check_properties(properties: Mapping[str, Any]) -> None:
    """A table's properties as they are set: texts, no secrets, and values that can be meant. None for a value removes one.

    Raises:
        InvalidInput: naming the property, and what it may be.
    """
    check_texts(properties)
    for name, value in properties.items():
        if value is not None:
            check(name, value)


def check(name: str, text: str) -> None:
    """Refuse what a property cannot be. One that nobody here knows may be anything, for whoever does.

    Raises:
        InvalidInput: naming the property, and what it may be.
    """
    if (why := _REFUSED.get(name)) is not None:
        raise InvalidInput(f"property {name!r} cannot be set: {why}")
    found = find(name)
    if found is not None:
        found.value(text, name)
    elif name.startswith(OWN):
        own = [each for each in PROPERTIES if each.startswith(OWN)]
        close = difflib.get_close_matches(name, own, 1, cutoff=0.8)
        there = f"did you mean {close[0]!r}" if close else f"there are {', '.join(own)}"
        raise InvalidInput(f"there is no property {name!r}; {there}")


def check_level(properties: Mapping[str, str], compression: str) -> None:
    """Refuse a compression level that the table's codec, or the one that engines are told of, has not.

    Raises:
        InvalidInput: naming the property.
    """
    level = COMPRESSION_LEVEL.of(properties)
    for codec in (compression.lower(), PARQUET_COMPRESSION.of(properties)):
        if level is None or codec is None:
            continue
        least, most = _LEVELS.get(codec, (1, 0))
        if not least <= level <= most:
            there = f"it has levels from {least:,} to {most:,}" if codec in _LEVELS else "it has no levels"
            raise InvalidInput(
                f"property {COMPRESSION_LEVEL.name}={str(level)!r} cannot be used with the compression {codec}: {there}"
            )


def check_topic(config: Mapping[str, str]) -> None:
    """Refuse what a topic's config cannot be. Raises InvalidInput: naming it."""
    for name, text in config.items():
        if name in TOPIC_CONFIG:
            TOPIC_CONFIG[name].value(text)

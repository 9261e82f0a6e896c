"""What is the same for all records of a file, as columns of Spark.

A record finds its file by a checksum of the file's name and a perfect hash: two look-ups in arrays. A join with a small table
of the files costs a scan a fifth of its time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW = "__row"  # a record's place in its file, from 0
_PATH, _CHECKSUM, _SLOT = "__path", "__checksum", "__slot"


def told_apart(names: Iterable[str]) -> list[list[str]]:
    """Files in groups whose names differ in their checksums: one group, but for a chance of n² in 2³³."""
    groups: list[dict[int, str]] = []
    for name in names:
        key = _checksum(name)
        group = next((group for group in groups if key not in group), None)
        if group is None:
            groups.append(group := {})
        group[key] = name
    return [list(group.values()) for group in groups]


def with_file_constants(files: DataFrame, constants: Mapping[str, Mapping[str, int]]) -> DataFrame:
    """The DataFrame of some Parquet files, with a bigint column for each constant, and ROW.

    A record of a file that is not named ends the job with an error: it would get another file's constants.

    Args:
        constants: by the file's name, as _metadata.file_path spells it, and by column. The names are `told_apart`.
    """
    from pyspark.sql import functions as F

    by_key = {_checksum(name): values for name, values in constants.items()}
    starts, sizes, slots = _perfect_hash(list(by_key))
    bucket = f"int({_CHECKSUM} % {len(starts)})"
    slot = f"int({_array(starts)}[{bucket}] + {_CHECKSUM} % {_array(sizes)}[{bucket}])"
    key = f"{_array(-1 if key is None else key for key in slots)}[{_SLOT}]"
    unknown = f"int(raise_error(concat('nothing is known of the file ', {_PATH})))"
    # The struct _metadata, carried through a projection, is built anew for each record.
    found = (
        files.withColumns({_PATH: F.col("_metadata.file_path"), ROW: F.col("_metadata.row_index")})
        .withColumn(_CHECKSUM, F.expr(f"crc32(cast({_PATH} as binary))"))
        .withColumn(_SLOT, F.expr(slot))
        .withColumn(_SLOT, F.expr(f"if({key} = {_CHECKSUM}, {_SLOT}, {unknown})"))
    )

    def value(name: str) -> Column:
        return F.expr(f"{_array(0 if key is None else by_key[key][name] for key in slots)}[{_SLOT}]")

    names = next(iter(constants.values())).keys()
    return found.withColumns({name: value(name) for name in names}).drop(_PATH, _CHECKSUM, _SLOT)


def _checksum(name: str) -> int:
    return zlib.crc32(name.encode())


def _perfect_hash(keys: Sequence[int]) -> tuple[list[int], list[int], list[int | None]]:
    """(start, size) of each bucket, and the key in each slot: a key's slot is start[key % n] + key % size[key % n], where n is
    the number of buckets. Fredman, Komlós and Szemerédi (1984), with the least modulus that tells a bucket's keys apart.
    """
    buckets: list[list[int]] = [[] for _ in keys]
    for key in keys:
        buckets[key % len(keys)].append(key)
    starts, sizes, slots = [], [], list[int | None]()
    for bucket in buckets:
        size = max(1, len(bucket))
        while len({key % size for key in bucket}) < len(bucket):
            size += 1
        starts.append(len(slots))
        sizes.append(size)
        by_slot = {key % size: key for key in bucket}
        slots += [by_slot.get(slot) for slot in range(size)]
    return starts, sizes, slots


def _array(values: Iterable[int]) -> str:
    return "array(" + ",".join(f"{value}L" for value in values) + ")"

"""Whose a warehouse is: an object in it names its registry, so that no two of them write into one warehouse, and clean it up."""

from __future__ import annotations

import contextlib
import itertools
import re
from pathlib import PurePosixPath

import msgspec

from lakeward.errors import ObjectNotFound, StorageError, WarehouseTaken
from lakeward.logs import log
from lakeward.storage.engine import StorageEngine

NAME = ".lakeward-warehouse.json"
LOOKED_AT = 1_000  # objects, for a warehouse of a version that left no mark
_OURS = re.compile(r"/(data|metadata)/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/")


class _Marker(msgspec.Struct, frozen=True):
    registry_uuid: str


def owner(engine: StorageEngine, warehouse: str) -> str | None:
    """The UUID of the registry that a warehouse (its location) belongs to; None if nobody has marked it.

    Raises StorageError.
    """
    try:
        return msgspec.json.decode(engine.read(f"{warehouse}/{NAME}"), type=_Marker).registry_uuid
    except ObjectNotFound:
        return None
    except msgspec.DecodeError as error:
        raise StorageError(
            f"{warehouse}/{NAME} is damaged; it says whose the warehouse is, and is written anew if you delete it and open the registry that the warehouse belongs to"
        ) from error


def check(engine: StorageEngine, warehouse: str, registry_uuid: str, *, is_new: bool = False) -> None:
    """Check that a warehouse is a registry's, and mark one that is not marked yet. `is_new`: the registry knows nothing of it.

    Raises:
        WarehouseTaken: it is another's, or a new one's and stands in another's or holds files of a lakehouse.
        StorageError.
    """
    if is_new:
        _check_apart(engine, warehouse, registry_uuid)
    found = owner(engine, warehouse)
    if found is None and is_new and _holds_files(engine, warehouse):
        raise WarehouseTaken(
            f"the warehouse {warehouse} holds files of a lakehouse that this registry, {registry_uuid}, knows nothing of: open "
            f"the registry that it belongs to, or choose another warehouse. {_WAY_OUT}"
        )
    if found is None:
        try:
            mark(engine, warehouse, registry_uuid)
            found = owner(engine, warehouse)  # another may have been quicker, or slower
        except StorageError as error:
            if is_new:
                raise
            # Who only reads goes on.
            log.warning("warehouse_not_marked", warehouse=warehouse, error=str(error), code=error.code)
            return
    if found != registry_uuid:
        raise WarehouseTaken(
            f"the warehouse {warehouse} belongs to the registry {found}, and this one is {registry_uuid}: open that one, or "
            f"choose another warehouse. {_WAY_OUT}"
        )


def check_free(engine: StorageEngine, warehouse: str) -> None:
    """Before a registry is made: whether the warehouse would be its own.

    Raises:
        WarehouseTaken: it is another's, stands in another's or holds files of a lakehouse.
        StorageError.
    """
    _check_apart(engine, warehouse, None)
    found = owner(engine, warehouse)
    if found is None and not _holds_files(engine, warehouse):
        return
    whose = (
        "holds files of a lakehouse that it knows nothing of" if found is None else f"belongs to the registry {found}"
    )
    raise WarehouseTaken(
        f"the warehouse {warehouse} {whose}: a new registry cannot have it; open the registry that it belongs to, or choose "
        "another warehouse. If that registry is gone for good, `lakeward db upgrade` makes a new one, and then `lakeward db "
        "adopt` makes the warehouse its own"
    )


def _check_apart(engine: StorageEngine, warehouse: str, registry_uuid: str | None) -> None:
    """Check that no folder above is another registry's warehouse, whose clean-up would meet what is here. Raises WarehouseTaken."""
    scheme, _, path = warehouse.partition("://")
    for parent in (str(each) for each in PurePosixPath(path).parents):
        if parent in ("/", "."):
            continue
        with contextlib.suppress(StorageError):  # what cannot be read there is nobody's that could be told
            found = owner(engine, f"{scheme}://{parent}")
            if found not in (None, registry_uuid):
                raise WarehouseTaken(
                    f"the warehouse {warehouse} stands in {scheme}://{parent}, which is the warehouse of the registry {found}: "
                    f"choose a folder outside of it; if that registry is gone for good, delete {scheme}://{parent}/{NAME}"
                )


def mark(engine: StorageEngine, warehouse: str, registry_uuid: str) -> None:
    """Make a warehouse a registry's, whoever's it was. Raises StorageError."""
    engine.write(f"{warehouse}/{NAME}", msgspec.json.encode(_Marker(registry_uuid)))


_WAY_OUT = (
    "If that registry is gone for good and this one takes its place, `lakeward db adopt` makes the warehouse this one's"
)


def _holds_files(engine: StorageEngine, warehouse: str) -> bool:
    return any(_OURS.search(found.location) for found in itertools.islice(engine.list(warehouse + "/"), LOOKED_AT))

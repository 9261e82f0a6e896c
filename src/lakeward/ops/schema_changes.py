"""What a schema's definition says, what differs between two, and whether readers of one read what the other wrote."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakeward import lossless_json
from lakeward.errors import InvalidSchema
from lakeward.ops.records.schema_versions import Compatibility, EvolutionType, SchemaChange, SchemaDefinition

_T = EvolutionType


def normal(definition: SchemaDefinition) -> SchemaDefinition:
    """A definition with all that it leaves out: nullable and primary_key of each column, and the primary keys.

    Raises:
        InvalidSchema: a column or index without a name, twice, of an unknown column; a key that its columns contradict.
    """
    for part in ("columns", "primary_keys", "indexes"):
        if isinstance(given := getattr(definition, part), (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise InvalidSchema(f"{part} are {str(given)[:100]!r}; give a list")
    columns = [_column(each) for each in definition.columns]
    names = [each["name"] for each in columns]
    _check_once("column", names)
    flagged = [each["name"] for each in columns if each["primary_key"]]
    keys = list(definition.primary_keys) or flagged
    _check_once("primary key", keys)
    if unknown := [name for name in keys if name not in names]:
        raise InvalidSchema(f"primary key {unknown[0]!r} is no column; the columns are {', '.join(names)}")
    if flagged and set(flagged) != set(keys):
        raise InvalidSchema(
            f"primary_keys are {', '.join(keys)}, but the columns that say primary_key are {', '.join(flagged)}; make them agree"
        )
    columns = [{**each, "primary_key": each["name"] in keys} for each in columns]
    indexes = [_index(each, names) for each in definition.indexes]
    _check_once("index", [each["name"] for each in indexes])
    return SchemaDefinition(columns, keys, indexes)


def _column(given: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str) or not given["name"]:
        raise InvalidSchema(f"column {given!r} has no name; give an object such as {{'name': 'id', 'type': 'bigint'}}")
    if not isinstance(given.get("type"), str) or not given["type"]:
        raise InvalidSchema(f"column {given['name']!r} has no type; give one such as 'bigint'")
    flags = {"nullable": True, "primary_key": False}
    column = {**flags, **given}
    for flag in flags:
        if not isinstance(column[flag], bool):
            raise InvalidSchema(f"column {given['name']!r} has {flag}={column[flag]!r}; give true or false")
    return column


def _index(given: Mapping[str, Any], columns: list[str]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str) or not given["name"]:
        raise InvalidSchema(f"index {given!r} has no name; give an object such as {{'name': 'ix', 'columns': ['id']}}")
    of = given.get("columns")
    if not isinstance(of, (list, tuple)) or not of:
        raise InvalidSchema(f"index {given['name']!r} has no columns")
    if unknown := [name for name in of if name not in columns]:
        raise InvalidSchema(f"index {given['name']!r} is on {unknown[0]!r}, which is no column")
    return {**given, "columns": list(of)}


def _check_once(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidSchema(f"{what} {name!r} is named twice")


def digest(definition: SchemaDefinition) -> str:
    """SHA-256 of a normal definition, hex. The order in which columns and indexes are listed does not matter."""
    document = {
        "columns": sorted(definition.columns, key=lambda each: str(each["name"])),
        "primary_keys": list(definition.primary_keys),
        "indexes": sorted(definition.indexes, key=lambda each: str(each["name"])),
    }
    return hashlib.sha256(lossless_json.dumps(document, "schema_definition", sort_keys=True).encode()).hexdigest()


# Differences --------------------------------------------------------------------------------------------------------------
def diff(
    old: SchemaDefinition | None, new: SchemaDefinition, renamed: Mapping[str, str] | None = None
) -> list[SchemaChange]:
    """All that leads from one normal definition to another. `renamed`: old names of columns to new ones.

    Raises InvalidSchema: a renamed column that was not there, or is not.
    """
    if old is None:
        return [SchemaChange(_T.CREATE)]
    if not isinstance(renamed, Mapping | None):
        raise InvalidSchema(f"renamed is {str(renamed)[:100]!r}; give old names to new ones, as {{'mail': 'email'}}")
    renames = dict(renamed or {})
    before = {each["name"]: each for each in old.columns}
    after = {each["name"]: each for each in new.columns}
    for was, now in renames.items():
        if was not in before or now not in after or now in before or was in after:
            raise InvalidSchema(f"column {was!r} cannot have been renamed to {now!r}: one of both versions contradicts")
    changes = [SchemaChange(_T.RENAME_COLUMN, was, was, now) for was, now in renames.items()]
    changes += [SchemaChange(_T.ADD_COLUMN, name, None, each) for name, each in after.items()
                if name not in before and name not in renames.values()]  # fmt: skip
    changes += [SchemaChange(_T.DROP_COLUMN, name, each) for name, each in before.items()
                if name not in after and name not in renames]  # fmt: skip
    for was, column in before.items():
        same = after.get(renames.get(was, was))
        if same is not None and not lossless_json.same(_properties(column), _properties(same)):
            changes.append(SchemaChange(_T.MODIFY_COLUMN, same["name"], column, same))
    return changes + _index_changes(old, new, renames) + _key_changes(old, new, renames)


def _properties(column: Mapping[str, Any]) -> dict[str, Any]:
    """What a modification is of: name and key are changes of their own."""
    return {key: value for key, value in column.items() if key not in ("name", "primary_key")}


def _index_changes(old: SchemaDefinition, new: SchemaDefinition, renames: Mapping[str, str]) -> list[SchemaChange]:
    before = {each["name"]: {**each, "columns": [renames.get(c, c) for c in each["columns"]]} for each in old.indexes}
    after = {each["name"]: each for each in new.indexes}
    changes = [SchemaChange(_T.ADD_INDEX, name, None, each) for name, each in after.items() if name not in before]
    changes += [SchemaChange(_T.DROP_INDEX, name, each) for name, each in before.items() if name not in after]
    changes += [
        SchemaChange(_T.MODIFY_INDEX, name, each, after[name])
        for name, each in before.items()
        if name in after and not lossless_json.same(each, after[name])
    ]
    return changes


def _key_changes(old: SchemaDefinition, new: SchemaDefinition, renames: Mapping[str, str]) -> list[SchemaChange]:
    before = [renames.get(name, name) for name in old.primary_keys]
    if before == list(new.primary_keys):
        return []
    return [SchemaChange(_T.CHANGE_PRIMARY_KEY, "", list(old.primary_keys), list(new.primary_keys))]


def guessed_renames(old: SchemaDefinition, new: SchemaDefinition) -> dict[str, str]:
    """Columns that went and columns that came with the same properties, pair by pair in their order."""
    before = {each["name"] for each in old.columns}
    after = {each["name"] for each in new.columns}
    came = [each for each in new.columns if each["name"] not in before]
    renames: dict[str, str] = {}
    for gone in (each for each in old.columns if each["name"] not in after):
        match = next((each for each in came if lossless_json.same(_properties(gone), _properties(each))), None)
        if match is not None:
            renames[gone["name"]] = match["name"]
            came.remove(match)
    return renames


# Compatibility ------------------------------------------------------------------------------------------------------------
def compatibility(changes: Sequence[SchemaChange]) -> Compatibility:
    """Whether readers of the new schema read what was written under the old one (backward), and the other way (forward)."""
    against_backward: list[str] = []
    against_forward: list[str] = []
    for change in changes:
        backward, forward = _against(change)
        against_backward += [f"backward: {reason}" for reason in backward]
        against_forward += [f"forward: {reason}" for reason in forward]
    return Compatibility(not against_backward, not against_forward, against_backward + against_forward)


def _against(change: SchemaChange) -> tuple[list[str], list[str]]:
    name = change.name
    if change.type == _T.ADD_COLUMN and not _may_lack(change.after):
        return [f"the new column {name} may not be null and has no default: old rows lack it"], []
    if change.type == _T.DROP_COLUMN and not _may_lack(change.before):
        return [], [f"the column {name}, which may not be null, is gone: new rows lack it"]
    if change.type == _T.RENAME_COLUMN:
        reason = f"the column {name} is called {change.after} now"
        return [reason], [reason]
    if change.type == _T.CHANGE_PRIMARY_KEY:
        reason = f"the primary key was {_listed(change.before)} and is {_listed(change.after)}"
        return [reason], [reason]
    return _against_modification(change) if change.type == _T.MODIFY_COLUMN else ([], [])


def _may_lack(column: Mapping[str, Any]) -> bool:
    return bool(column.get("nullable", True)) or column.get("default") is not None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _against_modification(change: SchemaChange) -> tuple[list[str], list[str]]:
    old, new = change.before, change.after
    backward: list[str] = []
    forward: list[str] = []
    if old["type"] != new["type"]:
        reason = f"the column {change.name} was {old['type']} and is {new['type']}"
        if not _holds(new["type"], old["type"]):
            backward.append(f"{reason}, which does not hold all of the old values")
        if not _holds(old["type"], new["type"]):
            forward.append(f"{reason}, which has values that the old one does not hold")
    if old["nullable"] and not new["nullable"]:
        backward.append(f"the column {change.name} may not be null any more: old rows may have nulls")
    if new["nullable"] and not old["nullable"]:
        forward.append(f"the column {change.name} may be null now: old readers expect a value")
    return backward, forward


_ALIASES = {
    **dict.fromkeys(("int2", "tinyint", "smallserial"), "smallint"),
    **dict.fromkeys(("int4", "int", "serial", "mediumint"), "integer"),
    **dict.fromkeys(("int8", "bigserial", "long"), "bigint"),
    **dict.fromkeys(("float4", "float"), "real"),
    **dict.fromkeys(("float8", "double"), "double precision"),
    **dict.fromkeys(("character varying", "string", "character", "char", "nvarchar"), "varchar"),
    **dict.fromkeys(("numeric", "number"), "decimal"),
}
# Each holds all values of those before it.
_CHAINS = (("smallint", "integer", "bigint"), ("real", "double precision"), ("varchar", "text"))
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_TYPE = re.compile(r"\s*([a-z_0-9 ]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?\s*")
_ENDLESS = 1 << 62


def _parsed(type_: str) -> tuple[str, int | None, int | None]:
    match = _TYPE.fullmatch(type_.lower())
    if match is None:
        return type_.lower(), None, None
    name = _ALIASES.get(match[1], match[1])
    return name, None if match[2] is None else int(match[2]), None if match[3] is None else int(match[3])


def _holds(wide: str, narrow: str) -> bool:
    """Whether a type holds every value of another. Types that are not known hold their own alone."""
    (w, w_length, w_scale), (n, n_length, n_scale) = _parsed(wide), _parsed(narrow)
    if w == "decimal" and n in ("decimal", *_DIGITS):
        if w_length is None:
            return True
        digits, scale = (n_length, n_scale or 0) if n == "decimal" else (_DIGITS[n], 0)
        own = w_scale or 0
        return digits is not None and own >= scale and w_length - own >= digits - scale
    if w == n:
        return (_ENDLESS if w_length is None else w_length) >= (_ENDLESS if n_length is None else n_length)
    return any(w in chain and n in chain and chain.index(w) > chain.index(n) for chain in _CHAINS)

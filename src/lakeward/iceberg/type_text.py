"""Types as text for people; `types.parse_text` reads it again."""

from __future__ import annotations

import re

from lakeward.iceberg.types import TypeDocument


def text_of(type_: TypeDocument) -> str:
    """A type document as text: 'decimal(9, 2)', 'list<string not null>', 'struct<`a b`: int>'."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "list":
        return f"list<{text_of(type_['element'])}{_required(type_['element-required'])}>"
    if type_["type"] == "map":
        return f"map<{text_of(type_['key'])}, {text_of(type_['value'])}{_required(type_['value-required'])}>"
    fields = [f"{_name(f['name'])}: {text_of(f['type'])}{_required(f['required'])}" for f in type_["fields"]]
    return f"struct<{', '.join(fields)}>"


def _required(is_required: bool) -> str:
    return " not null" if is_required else ""


def _name(name: str) -> str:
    return name if re.fullmatch(r"[\w.$-]+", name) else "`" + name.replace("`", "``") + "`"

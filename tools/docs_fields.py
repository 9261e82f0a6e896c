"""Reference pages show a record's fields and an enumeration's values: each with its type, default and comment in the code."""

from __future__ import annotations

from typing import Any

from griffe import Attribute, Class, Docstring, ExprCall, Extension

SECTION = "Attributes:"


class Fields(Extension):
    def on_class_members(self, *, node: Any, cls: Class, agent: Any, **kwargs: Any) -> None:
        text = cls.docstring.value if cls.docstring else ""
        found = list(_fields(cls).values())
        if not found or "Args:" in text:
            return
        lines = [SECTION, *(f"    {each.name}: {_described(each)}" for each in found)]
        if cls.docstring is None:
            cls.docstring = Docstring("", parent=cls, parser="google")
        cls.docstring.value = "\n".join([text, "", *lines] if text else lines)


def _fields(cls: Class) -> dict[str, Attribute]:
    """By name, with those of bases in its module, which its own come after or replace."""
    found: dict[str, Attribute] = {}
    for base in cls.bases:
        above = cls.parent.members.get(str(base)) if cls.parent else None
        if isinstance(above, Class):
            found |= _fields(above)
    return found | {name: each for name, each in cls.members.items() if isinstance(each, Attribute) and _is_field(each)}


def _is_field(attribute: Attribute) -> bool:
    is_declared = attribute.annotation is not None or attribute.name.isupper()
    return is_declared and not attribute.name.startswith("_") and "property" not in attribute.labels


def _described(attribute: Attribute) -> str:
    comment = next((line.split("  # ", 1)[1] for line in reversed(attribute.lines) if "  # " in line), "")
    said = [comment] if comment else []
    if attribute.value is not None and attribute.annotation is None:
        said.append(f"`{attribute.value}`")
    elif attribute.value is not None:
        # A value that is made for each record, such as an empty dict, says nothing as it stands in the code.
        made = isinstance(attribute.value, ExprCall)
        said.append("(has a default)" if made else f"(default `{attribute.value}`)")
    return " ".join(said) or "–"

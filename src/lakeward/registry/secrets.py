"""No secret enters the registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeward.errors import InvalidInput
from lakeward.names import is_storable

_WORDS = ("secret", "password", "passwd", "token", "accesskey", "credential")


def check_properties(properties: Mapping[str, Any]) -> None:
    """A table's properties: texts, and no secrets. None for a value removes it.

    Raises:
        InvalidInput: naming the property.
    """
    check_no_secrets("property", {str(name): value for name, value in properties.items()})
    for name, value in properties.items():
        for text in (name, value):
            if text is not None and (not isinstance(text, str) or not is_storable(text)):
                raise InvalidInput(
                    f"property {name!r} is a {type(value).__name__}: names and values are texts, without NUL and surrogates"
                )


def check_no_secrets(what: str, values: Mapping[str, Any]) -> None:
    """The registry's columns are readable, and properties reach every engine: credentials belong into the settings.

    Raises:
        InvalidInput: a name that looks like a secret's. The value is not shown.
    """
    for name, value in values.items():
        plain = "".join(c for c in name.lower() if c.isalnum())  # access_key, access-key, accessKey
        if value is not None and any(word in plain for word in _WORDS):
            raise InvalidInput(
                f"{what} {name!r} looks like a secret, and the registry keeps none; "
                "give it in the settings (s3_access_key, s3_secret_key) or the environment"
            )
        if isinstance(value, Mapping):
            check_no_secrets(what, value)

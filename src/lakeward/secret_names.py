"""Which names stand for secrets: one list, for what is refused where it would be readable, and for what is hidden."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lakeward.errors import InvalidInput

# As parts of a name whose letters and digits alone are looked at, in lower case.
_NAMES = (
    *("password", "passwd", "passphrase", "passcode", "secret", "token", "credential"),
    *("authorization", "cookie", "jwt"),
    *("passwort", "kennwort", "contrasena", "contraseña", "motdepasse", "senha"),
    *("apikey", "accesskey", "privatekey", "accountkey", "sharedkey", "signingkey", "encryptionkey", "masterkey"),
    *("authkey", "sslkey", "sshkey", "licensekey", "signature", "jaas", "bearer", "keytab", "sessionid", "sessid"),
    *("clientkey", "saskey", "codeverifier", "csrf", "otpcode"),
)
_WHOLE_NAMES = frozenset({"pwd", "pass", "auth", "sig", "pin", "otp", "sas", "pw", "pem"})
_LAST_WORDS = re.compile(
    r"(?:[\W_](?i:pass|pw|auth)|[a-z0-9](?:Pass|PW|Auth)|^(?:db|pg|my|ftp|smtp|mail|ldap|user|ssh)(?:pass|pw))$"
)
_COUNTS = ("count", "length", "size", "limit", "ttl", "seconds", "expiresin", "used")  # max_token_count is no secret


def is_secret_name(name: str) -> bool:
    """Whether what stands under a name is a secret, as far as the name says it."""
    return is_named_secret(name) and not _plain(name).endswith(_COUNTS)


def is_named_secret(name: str) -> bool:
    """The same, of a name of how many or how long too: max_token_count."""
    plain = _plain(name)
    return plain in _WHOLE_NAMES or any(word in plain for word in _NAMES) or _LAST_WORDS.search(name) is not None


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def check_no_secrets(what: str, values: Mapping[str, Any]) -> None:
    """The registry's columns are readable, and properties reach every engine: credentials belong into the settings.

    Raises:
        InvalidInput: a name that looks like a secret's. The value is not shown.
    """
    for name, value in values.items():
        if value is not None and is_secret_name(name):
            raise InvalidInput(
                f"{what} {name!r} looks like a secret, and the registry keeps none; "
                "give it in the settings (s3_access_key, s3_secret_key) or the environment"
            )
        if isinstance(value, Mapping):
            check_no_secrets(what, value)

"""Shapes that secrets have: as texts, in documents, in encodings; and what is none stays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from lakeward.ops import redaction

S = "Hunter2SecretXq9Zr7"  # in each shape below, and nowhere else

TEXTS = [
    # Tokens that are known by how they begin
    *(
        f"saw {start}{S}{S} there"
        for start in ("hf_", "shpat_", "glsa_", "ATATT3x", "1//0g", "whsec_", "lin_api_", "ntn_")
    ),
    *(
        f"saw {start}{S} there"
        for start in ("GOCSPX-", "dckr_pat_", "pscale_tkn_", "NRAK-", "sq0atp-", "AGE-SECRET-KEY-1")
    ),
    f"saw gldt-{S}",
    f"saw dp.st.prod.{S}{S}",
    # Addresses that are secrets themselves
    f"POST https://hooks.slack.com/services/T00000000/B00000000/{S} gave 404",
    f"https://discord.example/api/webhooks/123456789012345678/{S}",
    f"https://api.telegram.example/bot123456789:{S}AAAA/sendMessage",
    # Percent-encoded, once and twice
    quote(f"postgresql://app:{S}@db:5432/shop", safe=""),
    f"https://login.example/?redirect={quote(f'https://app:{S}@db/', safe='')}",
    f"https://a.example/?next={quote(quote(f'https://b.example/?token={S}', safe=''), safe='')}",
    quote(f'{{"password":"{S}"}}'),
    # JSON in JSON in JSON
    json.dumps(json.dumps(json.dumps({"client_secret": f"{S} {S}"}))),
    # Command lines
    f"sshpass -p {S} ssh db",
    f"sshpass -p'{S}' ssh db",
    f"redis-cli -h cache -a {S} ping",
    f"docker login -u app -p {S} registry",
    f"tool --db-password={S}",
    # Names in other languages, and short ones
    *(
        f"{name}={S}"
        for name in ("PASSWORT", "contraseña", "mot_de_passe", "senha", "db_pass", "DB_PASS", "PGPASS", "db_pw")
    ),
    f'"smtp_pass": "{S}"',
    f"X-Auth: {S}",
    f"apikey {S}",
    *(f"{name}={S}" for name in ("session_id", "JSESSID", "PHPSESSID", "csrf_token", "code_verifier")),
    f"PIN: {S}",
    # On the next line
    f"password: >\n  {S}",
    f"password: |-\n  {S}",
    f"password = \\\n  {S}",
    # A name and its value in two fields
    f"name: password\nvalue: {S}",
    json.dumps({"name": "DB_PASSWORD", "value": S}),
    f'<add key="password" value="{S}"/>',
    f"<property><name>db.password</name><value>{S}</value></property>",
    # SQL
    f'ALTER USER app WITH PASSWORD "{S}"',
    f"SET PASSWORD FOR app = '{S}'",
    f"CREATE SECRET (TYPE s3, KEY_ID 'a', SECRET '{S}')",
    f"(OperationalError) no\n[SQL: INSERT INTO users (name, password) VALUES (?, ?)]\n[parameters: ('app', '{S}')]\n(Background",
    # Keys
    f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{S}\nPrivate-MAC: aa",
]


@pytest.mark.parametrize("shape", TEXTS, ids=lambda shape: shape.replace(S, "S")[:50])
def test_a_secret_is_taken_out_of_a_text(shape: str) -> None:
    shown = redaction.text(shape)
    assert S.lower() not in shown.lower()
    assert "***" in shown


@dataclass
class Connection:
    """Whose repr, as that of many, shows all that it has."""

    password: str


DOCUMENTS: list[Any] = [
    {"connection": Connection(S)},
    [Connection(S)],
    {"name": "password", "value": S},
    {"Key": "DB_PASSWORD", "Value": S},
    *({name: S} for name in ("db_pass", "smtpPass", "X-Auth", "Passwort", "ssh_key", "license_key", "pem", "otp_code")),
    *({name: S} for name in ("token_count", "secretsize", "password_limit")),
    {"command": ["mysql", "-uroot", f"-p{S}", "shop"]},
    {"command": ("sshpass", "-p", S, "ssh")},
    {("dsn", f"postgres://a:{S}@db"): 1},
    {b"password": S},
]


@pytest.mark.parametrize("shape", DOCUMENTS, ids=lambda shape: str(shape).replace(S, "S")[:50])
def test_a_secret_is_taken_out_of_a_document(shape: Any) -> None:
    assert S not in repr(redaction.document(shape))


def test_what_is_no_secret_stays_in_a_document() -> None:
    kept = {
        "token_count": 5,
        "password_limit": "12",
        "bypass": "road",
        "paths": ["s3://b/a%20b", "100 %"],
        "name": "orders",
        "value": 5,
        "key": "id",
        "command": ["spark-submit", "--master", "local[2]", "job.py"],
    }
    assert redaction.document(kept) == kept


def test_what_is_nested_deep_or_holds_itself_is_cut_off() -> None:
    cycle: dict[str, Any] = {"password": S}
    cycle["me"] = [cycle]
    assert "nested deeper than" in repr(redaction.document(cycle))
    assert S not in repr(redaction.document(cycle))


LONG = [
    "a",
    "a_",
    "a.",
    "-",
    "-u",
    "://:",
    "mysql ",
    "password",
    "<a",
    "eyJ",
    'password="',
    "a:",
    " ",
    "\n",
    "\\",
    "A",
    "a@",
]


@pytest.mark.parametrize("part", LONG)
def test_a_long_text_of_any_shape_takes_time_in_proportion(part: str) -> None:
    """Where each character was the start of another search to the end, such a text took hours."""
    shown = redaction.text(f"password={S} " + part * (100_000 // len(part)))
    assert S not in shown

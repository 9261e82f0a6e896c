"""No secret that is given to operations metadata is in the database's bytes or in the logs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lakeward.db import schema
from lakeward.metadata import ErrorType, MetadataManager, OperationType, SyncMode, SyncStatus
from tests.support.registries import rows_of

S = "Hunter2SecretXq9Zr7"  # in each shape below, and nowhere else
B64 = base64.b64encode(f"admin:{S}".encode()).decode()
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx{S}In0.{S}"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{S}\n{S}\n-----END RSA PRIVATE KEY-----"

TEXTS = [
    f"postgresql://app:{S}@db.example:5432/shop?sslmode=require",
    f"mongodb+srv://app:p@{S}@cluster/shop",
    f"mysql://root:{S}/x@h/db",
    f"https://{S}@github.example/repo.git",
    f"redis://:{S}@cache:6379/0",
    f"amqp://guest:'{S}'@mq",
    f"jdbc:postgresql://db/shop?user=app&password={S}",
    f"jdbc:sqlserver://db;user=sa;password={S};encrypt=true",
    f"jdbc:oracle:thin:scott/{S}@//db:1521/orcl",
    f"host=db user=app password={S} dbname=shop",
    f"host=db user=app password='a {S}' dbname=shop",
    f"Server=db;Uid=sa;Pwd={S};",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={S}==;EndpointSuffix=core",
    f"https://a.blob.core.example/c?sv=2024&sig={S}%3D&se=2026",
    f"https://b.s3.example/k?X-Amz-Credential={S}&X-Amz-Signature={S}",
    f"aws_secret_access_key = {S}",
    f"AWS_SESSION_TOKEN={S}",
    f"fs.s3a.secret.key={S}",
    f"Authorization: Bearer {S}",
    f"Authorization: Basic {B64}",
    f"curl -H 'X-Api-Key: {S}' https://api",
    f"curl -u admin:{S} https://api",
    f"mysqldump -uroot -p{S} shop",
    f"tool --password {S} --verbose",
    f"tool --api-key={S}",
    f"PGPASSWORD={S} psql",
    f"db.example:5432:shop:app:{S}",
    f"machine db login app password {S}",
    f"ALTER USER app WITH PASSWORD '{S}'",
    f"CREATE USER app IDENTIFIED BY '{S}'",
    f"<password>{S}</password>",
    json.dumps({"user": "app", "password": S}),
    repr({"token": S, "host": "db"}),
    json.dumps(json.dumps({"client_secret": f"{S} {S}"})),
    f'sasl.jaas.config=org.PlainLoginModule required username="a" password="{S}";',
    f"Set-Cookie: session={S}; Path=/",
    f"token: ghp_{S}{S}",
    f"the password is {S}",
    f"saw ghp_{S}{S} in the log",
    f"saw xoxb-1234-{S}",
    f"saw sk-proj-{S}",
    f"saw {JWT}",
    PEM,
    f"sent Bearer {S} to the server",
    f"admin:{S}@db.internal:5432 refused",
    f"refresh_token=>{S}",
    f'passphrase : "{S}"',
]
NAMED: list[Any] = [
    {"password": S},
    {"PASSWORD": f"a {S}"},
    {"dbPassword": S},
    {"secret_key": S.encode()},
    {"accessKey": [S, {"inner": S}]},
    {"credentials": {"user": "app", "pw": S}},
    {"api-key": S},
    {"headers": [["Authorization", S], ("cookie", f"a={S}")]},
    {"oauth": {"refreshToken": S}},
    {"ssl_key": PEM, "passphrase": S},
    {"sasl.jaas.config": S},
    {"nested": [{"deep": {"auth": S}}]},
    {"raw": f"password={S}".encode()},
    {"args": ("--token", S), "env": {"PGPASSWORD": S}},
    {"command": ["psql", "--password", S, "shop"]},
    {"url": f"https://maps.example/api?key={S}&q=1"},
    {f"postgres://a:{S}@h": "as a name"},
    {"error": ValueError(f"no connection to postgres://a:{S}@h")},
]


@pytest.fixture
def manager(made_url: str) -> Iterator[MetadataManager]:
    with MetadataManager(made_url, redact_columns=["ssn", "card_number"]) as opened:
        yield opened


def _everything(manager: MetadataManager) -> bytes:
    """All that is stored: of SQLite the files' bytes, of PostgreSQL the rows, as texts and repr."""
    stored = [repr(rows_of(manager.registry, name)) for name in sorted(schema.metadata.tables)]
    if manager.registry.database.is_sqlite:
        path = Path(str(manager.registry.database.url.database))
        return b"".join(each.read_bytes() for each in path.parent.glob(path.name + "*")) + "".join(stored).encode()
    with manager.registry.database.read() as connection:
        for name in sorted(schema.OPERATIONS):
            stored += list(connection.exec_driver_sql(f"SELECT t::text FROM {name} t").scalars())
    return "".join(stored).encode()


def _throw_at_every_entrance(manager: MetadataManager, secret: Any) -> None:
    text = secret if isinstance(secret, str) else repr(secret)
    run = manager.start_sync_run("shop", SyncMode.BATCH, "c", secret, {"a": [secret]}, text, text)
    manager.complete_sync_run(run.id, SyncStatus.FAILED, None, text, {"why": secret})
    error = manager.log_error(
        "shop", ErrorType.CONNECTION, text, "t", run.id, text, {"e": secret}, f"Traceback\n  {text}\n  more", {"id": 1}
    )
    manager.record_retry(error.id, error_message=text)
    manager.resolve_error(error.id, text)
    manager.ignore_error(manager.log_error("shop", ErrorType.DATA, "x").id, text)
    letter = manager.add_to_dead_letter_queue("shop", "t", OperationType.INSERT, {"id": 1}, error_message=text)
    manager.discard_dead_letter(letter.id, text)


@pytest.mark.parametrize("secret", [*TEXTS, *NAMED], ids=lambda secret: str(secret).replace(S, "S")[:50])
@pytest.mark.on("sqlite")
def test_a_secret_is_found_at_no_entrance(manager: MetadataManager, secret: Any) -> None:
    with capture_logs() as logs:
        _throw_at_every_entrance(manager, secret)
    stored = _everything(manager)
    assert b"shop" in stored
    for shown in (S.encode(), B64.encode(), base64.b64encode(S.encode())):
        assert shown not in stored
        assert shown not in repr(logs).encode()


def test_configured_columns_of_records_are_not_stored_and_neither_are_their_values_in_messages(
    manager: MetadataManager,
) -> None:
    record = {"id": 1, "SSN": S, "nested": [{"card_number": {"no": S}}], "name": "kept"}
    with capture_logs():
        error = manager.log_error(
            "shop",
            ErrorType.DATA,
            f"{S} is no number",
            "t",
            error_details={"value": S},
            stack_trace=f"at {S}",
            record_data=record,
            max_retries=1,
        )
        manager.record_retry(error.id)
        manager.add_to_dead_letter_queue(
            "shop", "t", OperationType.INSERT, record, error_message=f"bad {S}", envelope={"after": record}
        )
    assert S.encode() not in _everything(manager)
    assert error.record_data == {"id": 1, "SSN": "***", "nested": [{"card_number": "***"}], "name": "kept"}


def test_a_record_and_a_position_are_stored_as_they_are(manager: MetadataManager) -> None:
    record = {"password": S, "url": f"postgres://a:{S}@h"}
    letter = manager.add_to_dead_letter_queue("shop", "t", OperationType.INSERT, record)
    manager.update_stream_position("shop", {"resume_token": S})
    assert manager.get_dead_letter(letter.id).record_data == record
    assert manager.get_stream_position("shop") == {"resume_token": S}


HARMLESS = [
    "column amount: value 12.5 is out of range for type numeric(3,1)",
    "at 2026-01-02T03:04:05.000006Z line 5, orders.py:120 in apply",
    'File "/srv/app/apply.py", line 12, in <module>\n    raise KeyError("id")',
    "s3://bucket/prefix/file.parquet is missing",
    "connection to server at 127.0.0.1, port 5432 failed: Connection refused",
    "Basic information is missing; primary key id is null",
    'duplicate key value violates unique constraint "orders_pkey" Key (id)=(5)',
]


@pytest.mark.parametrize("message", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(manager: MetadataManager, message: str) -> None:
    details = {
        "primary_key": "id",
        "keys": [1],
        "max_token_count": 5,
        "password_set": True,
        "offset": 5,
        "table": "a.b",
    }
    error = manager.log_error("shop", ErrorType.DATA, message, stack_trace=message, error_details=details)
    assert (error.error_message, error.stack_trace, error.error_details) == (message, message, details)

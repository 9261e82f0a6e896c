"""Tables over the REST catalog. Loading one commits what is pending first: a query reads every registered row."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Header, Query, Response

from lakeward.catalog.errors import error_response
from lakeward.catalog.loads import Loads
from lakeward.catalog.naming import decode_level, decode_namespace, page_of
from lakeward.iceberg import metadata
from lakeward.names import TableIdentifier
from lakeward.registry import Registry
from lakeward.snapshots.metadata_objects import reader
from lakeward.tables import tables
from lakeward.tables.records.tables import Table

# The body of a table's metadata is put into the answer as it is stored: to parse and write it again would cost more than all
# the rest of a load.
_LOADED = b'{"metadata-location":%b,"metadata":%b,"config":%b}'


def router(registry: Registry) -> APIRouter:
    routes = APIRouter(prefix="/namespaces/{namespace}/tables")
    loads = Loads(registry)

    @routes.get("")
    def list_tables(
        namespace: str,
        page_token: str | None = Query(None, alias="pageToken"),
        page_size: int | None = Query(None, alias="pageSize", ge=1),
    ) -> dict[str, Any]:
        page = page_of(page_token, page_size)
        found = tables.list_tables(registry, decode_namespace(namespace), after=page.after or "", limit=page.limit)
        return {
            "identifiers": [{"namespace": list(table.namespace), "name": table.name} for table in found],
            "next-page-token": page.next_token([table.name for table in found]),
        }

    @routes.get("/{table}")
    async def load_table(
        namespace: str,
        table: str,
        pending: str | None = Header(None, alias="X-Lakeward-Pending"),
        if_none_match: str | None = Header(None),
    ) -> Response:
        name = _identifier(namespace, table)
        found = await to_thread.run_sync(lambda: tables.load(registry, name))
        location = await loads.location(found.table_id, files=pending != "skip")
        return await loads.with_storage(lambda: _answer(registry, found, location, if_none_match))

    @routes.head("/{table}", status_code=204)
    def table_exists(namespace: str, table: str) -> Response:
        tables.load(registry, _identifier(namespace, table))
        return Response(status_code=204)

    @routes.post("/{table}")
    def commit(namespace: str, table: str) -> Response:
        name = tables.load(registry, _identifier(namespace, table)).identifier
        # Of the kind after which engines delete the files of the commit.
        return error_response(
            403,
            "ForbiddenException",
            f"{name} takes no commits from query engines: nothing was changed. Append with "
            f'`lakeward append {name} FILE`, or in Python with `lake.append("{name}", rows)`, which takes Spark\'s DataFrames '
            f"too; change columns and properties with the commands of `lakeward alter`. Objects that the engine may have left below the table's "
            "folder are deleted by `lakeward clean` once they are a week old",
        )

    return routes


def _identifier(namespace: str, table: str) -> TableIdentifier:
    return TableIdentifier(decode_namespace(namespace), decode_level(table))


def _answer(registry: Registry, table: Table, location: str, known: str | None) -> Response:
    """The table (schema LoadTableResult), or 304 where the client has it as it is."""
    # A location is written once, so it stands for what is in it.
    tag = f'"{hashlib.sha256(location.encode()).hexdigest()[:32]}"'
    if known is not None and tag in (part.strip().removeprefix("W/") for part in known.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    body = _LOADED % (
        msgspec.json.encode(location),
        metadata.plain(reader(registry, table)(location)),
        msgspec.json.encode(_client_config(registry, table)),
    )
    return Response(body, media_type="application/json", headers={"ETag": tag})


def _client_config(registry: Registry, table: Table) -> dict[str, str]:
    """Where the table's objects are reached; credentials are the client's own."""
    settings = registry.settings
    if not table.location.startswith("s3://"):
        return {}
    path_style = settings.s3_path_style if settings.s3_path_style is not None else settings.s3_endpoint is not None
    options = {
        "s3.endpoint": settings.s3_endpoint,
        "s3.region": settings.s3_region,
        "client.region": settings.s3_region,
        "s3.path-style-access": "true" if path_style else None,
    }
    return {name: value for name, value in options.items() if value is not None}

"""Namespaces over the REST catalog."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Response

from lakeward.catalog.naming import MAX_PAGE_SIZE, Page, decode_namespace, page_of, split_namespace
from lakeward.names import SEPARATOR
from lakeward.registry import Registry
from lakeward.tables import namespaces
from lakeward.tables.records.tables import Namespace


def router(registry: Registry) -> APIRouter:
    routes = APIRouter(prefix="/namespaces")

    @routes.get("")
    def list_namespaces(
        parent: str | None = Query(None),
        page_token: str | None = Query(None, alias="pageToken"),
        page_size: int | None = Query(None, alias="pageSize", ge=1),
    ) -> dict[str, Any]:
        page = page_of(page_token, page_size)
        found = _children(registry, split_namespace(parent) if parent else (), page)
        return {
            "namespaces": [list(namespace.levels) for namespace in found],
            "next-page-token": page.next_token([SEPARATOR.join(namespace.levels) for namespace in found]),
        }

    @routes.get("/{namespace}")
    def load_namespace(namespace: str) -> dict[str, Any]:
        found = namespaces.load(registry, decode_namespace(namespace))
        return {"namespace": list(found.levels), "properties": found.properties}

    @routes.head("/{namespace}", status_code=204)
    def namespace_exists(namespace: str) -> Response:
        namespaces.load(registry, decode_namespace(namespace))
        return Response(status_code=204)

    return routes


def _children(registry: Registry, parent: tuple[str, ...], page: Page) -> list[Namespace]:
    """A page of the namespaces one level below `parent`; the registry lists every depth, in pages of its own."""
    found: list[Namespace] = []
    after = page.after or ""
    while True:
        below = namespaces.list_namespaces(registry, parent, after=after, limit=MAX_PAGE_SIZE)
        found += [namespace for namespace in below if len(namespace.levels) == len(parent) + 1]
        if len(below) < MAX_PAGE_SIZE or (page.limit is not None and len(found) >= page.limit):
            return found[: page.limit]
        after = SEPARATOR.join(below[-1].levels)

"""GET /v1/config: what the server is and what it serves."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query

from lakeward.errors import WarehouseNotFound
from lakeward.registry import Registry

# Clients call nothing that is not in this list (Iceberg REST specification, CatalogConfig.endpoints). So a commit is in it though
# each is refused: an engine that writes is told what to do, and takes back what it has written.
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)


def router(registry: Registry) -> APIRouter:
    routes = APIRouter()

    @routes.get("/config")
    def config(warehouse: str | None = Query(None)) -> dict[str, Any]:
        known = (registry.warehouse.name, registry.warehouse.location, registry.warehouse.warehouse_uuid)
        if warehouse is not None and warehouse not in known:
            raise WarehouseNotFound(f"Warehouse does not exist: {warehouse}; this server serves {known[0]!r}")
        return {"defaults": {}, "overrides": {}, "endpoints": list(ENDPOINTS)}

    return routes

"""The application: the resources' routes put together."""

from __future__ import annotations

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import Response

from lakeward import __version__
from lakeward.catalog import config, namespaces, tables
from lakeward.catalog.auth import token_check
from lakeward.catalog.errors import add_error_handlers, unsupported
from lakeward.catalog.naming import EncodedPaths
from lakeward.registry import Registry

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


def create_app(registry: Registry, *, token: str | None) -> FastAPI:
    """The server's application over a registry. With a token, all but /health asks for it.

    Most handlers are plain functions, which run on a pool of threads: the registry is synchronous. What may wait for long is
    awaited.
    """
    app = FastAPI(title="Lakeward", version=__version__, openapi_url=None)  # no page without the token
    app.add_middleware(EncodedPaths)
    add_error_handlers(app)

    @app.get("/health")
    async def health() -> dict[str, str]:  # waits for no worker
        return {"status": "ok"}

    catalog = APIRouter(prefix="/v1", dependencies=[Depends(token_check(token))])
    catalog.include_router(config.router(registry))
    catalog.include_router(namespaces.router(registry))
    catalog.include_router(tables.router(registry))

    @catalog.api_route("/{rest:path}", methods=_METHODS, include_in_schema=False)
    def everything_else(request: Request, rest: str) -> Response:
        return unsupported(request)

    app.include_router(catalog)
    return app

"""Errors over HTTP: the one place where Lakeward's errors become statuses and Iceberg's error bodies."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from lakeward.errors import LakewardError
from lakeward.logs import log

RETRY_AFTER_SECONDS = 1  # what a 503 asks a client to wait

# Types that clients know, by our codes; else by status.
_TYPES_BY_CODE = {
    "namespace_not_found": "NoSuchNamespaceException",
    "table_not_found": "NoSuchTableException",
    "namespace_already_exists": "AlreadyExistsException",
    "table_already_exists": "AlreadyExistsException",
    "namespace_not_empty": "NamespaceNotEmptyException",
    # The metadata file that the registry names is gone.
    "object_not_found": "NotFoundException",
}
_TYPES_BY_STATUS = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "UnsupportedOperationException",
    409: "CommitFailedException",
    501: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}


def error_response(status: int, type_: str, message: str) -> JSONResponse:
    """An error as the Iceberg REST specification has it (schema IcebergErrorResponse)."""
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 503 else None
    if status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    body = {"error": {"message": message, "type": type_, "code": status}}
    return JSONResponse(body, status_code=status, headers=headers)


def unsupported(request: Request) -> JSONResponse:
    """The answer to an endpoint of the specification that this server does not serve."""
    return error_response(
        501,
        "UnsupportedOperationException",
        f"this server does not serve {request.method} {request.url.path}; GET /v1/config lists what it serves",
    )


def to_response(error: LakewardError) -> JSONResponse:
    """An error of Lakeward's as a response.

    Its message is passed on, unless it may name the database's host and user or hold a driver's text: that is for the log.
    """
    type_ = _TYPES_BY_CODE.get(error.code) or _TYPES_BY_STATUS.get(error.status, "ServiceFailureException")
    return error_response(error.status, type_, error.answer or str(error))


def add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(LakewardError, _on_lakeward_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_anything_else)


def _on_lakeward_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LakewardError)
    if error.status >= 500:
        log.warning("request failed", method=request.method, path=request.url.path, code=error.code, error=str(error))
    return to_response(error)


def _on_invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return error_response(
        400,
        "BadRequestException",
        f"{where} {'is missing' if first['type'] == 'missing' else 'has a value that cannot be used'}",
    )


def _on_http_exception(request: Request, error: Exception) -> Response:
    """What the framework itself answers: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return unsupported(request)
    type_ = _TYPES_BY_STATUS.get(error.status_code, "ServiceFailureException")
    return error_response(
        error.status_code,
        type_,
        f"{request.method} {request.url.path}: {HTTPStatus(error.status_code).phrase}; GET /v1/config lists what this server serves",
    )


def _on_anything_else(request: Request, error: Exception) -> Response:
    """A fault of ours: the client learns its kind, the log the rest."""
    log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    return error_response(
        500, "ServiceFailureException", f"internal error ({type(error).__name__}); see the server's log"
    )

"""Errors over HTTP: what a client sees of each kind."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from lakeward import errors
from lakeward.catalog.errors import add_error_handlers


def answer(error: Exception) -> tuple[int, dict[str, object], dict[str, str]]:
    app = FastAPI()
    add_error_handlers(app)

    @app.get("/")
    def fail() -> None:
        raise error

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lakeward") as client:
            return await client.get("/")

    response = asyncio.run(ask())
    return response.status_code, response.json()["error"], dict(response.headers)


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (errors.TableNotFound("Table does not exist: a.b"), 404, "NoSuchTableException"),
        (errors.NamespaceNotFound("Namespace does not exist: a"), 404, "NoSuchNamespaceException"),
        (errors.TableAlreadyExists("x"), 409, "AlreadyExistsException"),
        (errors.NamespaceAlreadyExists("x"), 409, "AlreadyExistsException"),
        (errors.NamespaceNotEmpty("x"), 409, "NamespaceNotEmptyException"),
        (errors.InvalidName("x"), 400, "BadRequestException"),
        (errors.NotAuthorized("x"), 401, "NotAuthorizedException"),
        (errors.ObjectNotFound("x"), 404, "NotFoundException"),
        (errors.LeaseHeld("x"), 503, "ServiceUnavailableException"),
        (errors.MetadataConflict("x"), 503, "ServiceUnavailableException"),
        (errors.RegistryUnavailable("x"), 503, "ServiceUnavailableException"),
        (errors.DatabaseError("x"), 500, "ServiceFailureException"),
    ],
)
def test_each_kind_has_the_status_and_the_type_that_iceberg_s_clients_know(
    error: errors.LakewardError, status: int, type_: str
) -> None:
    got, body, _ = answer(error)
    assert got == status
    assert body == {"message": error.answer or str(error), "type": type_, "code": status}


def test_a_503_says_when_to_come_again() -> None:
    assert answer(errors.LeaseHeld("held"))[2]["retry-after"] == "1"


def test_a_fault_of_ours_is_a_500_that_keeps_its_message_to_itself() -> None:
    status, body, _ = answer(RuntimeError("password=hunter2"))
    assert status == 500
    assert "hunter2" not in str(body)


def test_every_error_of_lakeward_has_a_status_of_http() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LakewardError)
    ]
    assert all(400 <= kind.status <= 599 for kind in kinds)


def test_an_error_may_name_a_code_and_a_status_of_its_own() -> None:
    class OddColour(errors.InvalidInput):
        code, status = "odd_color", 422

    class OddShape(OddColour):
        pass

    assert (OddColour.code, OddColour.status) == ("odd_color", 422)
    assert (OddShape.code, OddShape.status) == ("odd_shape", 422)


@pytest.mark.parametrize(
    "error",
    [
        errors.RegistryUnavailable,
        errors.RegistryOutdated,
        errors.RegistryTooNew,
        errors.DatabaseError,
        errors.TransactionConflict,
        errors.RegistryLost,
        errors.ForkedProcess,
    ],
)
def test_no_answer_shows_where_the_registry_is_or_what_its_driver_says(error: type[errors.LakewardError]) -> None:
    status, body, _ = answer(
        error("the registry postgresql://ann@db.internal/lake refused a statement: driver's words")
    )
    assert status >= 500
    assert not any(word in str(body) for word in ("ann", "db.internal", "driver's words"))
    assert len(str(body["message"])) > 20

"""The REST catalog over HTTP, as any client sees it, and as PyIceberg uses it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, UnauthorizedError

import lakeward
from lakeward.catalog.config import ENDPOINTS
from lakeward.registry import leases
from lakeward.storage.locations import local_path
from lakeward.tables import snapshots

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})
# A part of a URL cannot be '.' or '..', however it is encoded: clients take such parts out.
ODD_NAMES = [
    "with space",
    "per%cent",
    "sla/sh",
    "plus+sign",
    "dot.in",
    'quo"te',
    "ünï",
    "question?",
    "h#sh",
    "a&b=c",
]


@pytest.fixture
def client(lake: lakeward.Lake) -> Iterator[httpx.Client]:
    url, token = lake.serve()
    with httpx.Client(base_url=f"{url}/v1", headers={"Authorization": f"Bearer {token}"}) as opened:
        yield opened


@pytest.fixture
def catalog(lake: lakeward.Lake) -> RestCatalog:
    return RestCatalog("lakeward", uri=lake.catalog_url, token=lake.token or "")


def load(client: httpx.Client, path: str, **headers: str) -> Any:
    response = client.get(f"/namespaces/{path}", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def error(response: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()["error"]
    assert body["code"] == response.status_code
    return body


# What is served -----------------------------------------------------------------------------------------------------------


def test_every_endpoint_in_the_config_is_served_and_no_other(client: httpx.Client, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    assert client.get("/config").json()["endpoints"] == list(ENDPOINTS)
    for endpoint in ENDPOINTS:
        method, path = endpoint.split()
        path = path.replace("/v1/{prefix}", "").format(namespace="sales", table="orders")
        expected = (403,) if method == "POST" else (200, 204)  # a commit is served to say what to do in its place
        assert client.request(method, path).status_code in expected, endpoint


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/namespaces"),
        ("POST", "/namespaces/sales/tables"),
        ("DELETE", "/namespaces/sales/tables/orders"),
        ("POST", "/tables/rename"),
        ("GET", "/namespaces/sales/views"),
        ("POST", "/transactions/commit"),
    ],
)
def test_what_is_not_served_yet_is_answered_as_unsupported(client: httpx.Client, method: str, path: str) -> None:
    response = client.request(method, path, json={})
    assert response.status_code == 501
    assert error(response)["type"] == "UnsupportedOperationException"


def test_another_warehouse_than_the_servers_is_refused_by_name(client: httpx.Client) -> None:
    assert client.get("/config", params={"warehouse": "default"}).status_code == 200
    response = client.get("/config", params={"warehouse": "elsewhere"})
    assert response.status_code == 404
    assert "elsewhere" in error(response)["message"]


def test_health_needs_no_token(lake: lakeward.Lake) -> None:
    assert httpx.get(f"{lake.catalog_url}/health").json() == {"status": "ok"}


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer"])
def test_without_the_token_nothing_is_told(lake: lakeward.Lake, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    response = httpx.get(f"{lake.catalog_url}/v1/namespaces", headers=headers)
    assert response.status_code == 401
    assert error(response)["type"] == "NotAuthorizedException"


def test_pyiceberg_with_a_wrong_token_is_refused(lake: lakeward.Lake) -> None:
    with pytest.raises(UnauthorizedError, match="token"):
        RestCatalog("lakeward", uri=lake.catalog_url, token="wrong")


def test_a_lake_that_is_closed_serves_no_more(tmp_path: Path) -> None:
    with lakeward.connect(registry=tmp_path / "registry.db", warehouse=tmp_path / "warehouse") as lake:
        url = lake.catalog_url
        assert httpx.get(f"{url}/health").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


# Namespaces ---------------------------------------------------------------------------------------------------------------


def test_a_namespace_shows_its_properties_exactly_as_set(client: httpx.Client, lake: lakeward.Lake) -> None:
    properties = {"owner": "me", "empty": "", "Ü": "ñ"}
    lake.create_namespace("sales", properties)
    assert load(client, "sales") == {"namespace": ["sales"], "properties": properties}
    assert client.head("/namespaces/sales").status_code == 204


def test_a_missing_namespace_is_a_404_that_iceberg_s_clients_know(client: httpx.Client) -> None:
    response = client.get("/namespaces/nope")
    assert error(response) == {
        "message": "Namespace does not exist: nope",
        "type": "NoSuchNamespaceException",
        "code": 404,
    }
    assert client.head("/namespaces/nope").status_code == 404
    assert client.get("/namespaces/nope/tables").status_code == 404
    assert client.get("/namespaces", params={"parent": "nope"}).status_code == 404


def test_a_list_of_namespaces_shows_one_level(client: httpx.Client, lake: lakeward.Lake) -> None:
    for name in ("a", "a.b", "a.b.c", "a.d", "e"):
        lake.create_namespace(name)
    assert client.get("/namespaces").json()["namespaces"] == [["a"], ["e"]]
    assert client.get("/namespaces", params={"parent": "a"}).json()["namespaces"] == [["a", "b"], ["a", "d"]]
    assert client.get("/namespaces", params={"parent": "a\x1fb"}).json()["namespaces"] == [["a", "b", "c"]]


def test_pages_together_hold_each_entry_once_in_order(client: httpx.Client, lake: lakeward.Lake) -> None:
    names = [f"t{number:02}" for number in range(7)]
    for name in names:
        lake.create_table(("n", name), ROWS.schema)
        lake.create_namespace(("n", name))
    for path, key in (("/namespaces/n/tables", "identifiers"), ("/namespaces?parent=n", "namespaces")):
        found, token = [], ""
        while token is not None:
            answer = client.get(
                path, params={**dict(httpx.URL(path).params), "pageToken": token, "pageSize": "3"}
            ).json()
            assert len(answer[key]) <= 3
            found += [entry["name"] if isinstance(entry, dict) else entry[-1] for entry in answer[key]]
            token = answer["next-page-token"]
        assert found == names


@pytest.mark.parametrize("params", [{"pageToken": "no token"}, {"pageSize": "0"}, {"pageSize": "many"}])
def test_a_page_that_cannot_be_is_refused(client: httpx.Client, params: dict[str, str]) -> None:
    response = client.get("/namespaces", params=params)
    assert response.status_code == 400
    assert error(response)["type"] == "BadRequestException"


# Tables -------------------------------------------------------------------------------------------------------------------


def test_a_missing_table_is_a_404_that_iceberg_s_clients_know(client: httpx.Client, lake: lakeward.Lake) -> None:
    lake.create_namespace("sales")
    response = client.get("/namespaces/sales/tables/nope")
    assert error(response) == {
        "message": "Table does not exist: sales.nope",
        "type": "NoSuchTableException",
        "code": 404,
    }
    assert client.head("/namespaces/sales/tables/nope").status_code == 404


def test_a_load_commits_what_is_pending_first(client: httpx.Client, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    lake.append("sales.orders", ROWS)
    assert lake.snapshots("sales.orders") == []
    answer = load(client, "sales/tables/orders")
    [snapshot] = lake.snapshots("sales.orders")
    assert answer["metadata"]["current-snapshot-id"] == snapshot.snapshot_id
    assert answer["metadata-location"] == snapshot.metadata_location
    assert snapshot.trigger == "query"


def test_a_load_for_a_writer_commits_nothing_but_shows_the_newest_schema(
    client: httpx.Client, lake: lakeward.Lake
) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    lake.append("sales.orders", ROWS)
    lake.add_column("sales.orders", "price", "double")
    metadata = load(client, "sales/tables/orders", **{"X-Lakeward-Pending": "skip"})["metadata"]
    assert metadata.get("current-snapshot-id") in (None, -1)
    current = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    assert [field["name"] for field in current["fields"]] == ["id", "name", "price"]
    assert lake.snapshots("sales.orders") == []


def test_a_second_load_makes_no_second_snapshot(client: httpx.Client, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    lake.append("sales.orders", ROWS)
    first, second = (load(client, "sales/tables/orders") for _ in range(2))
    assert first == second
    assert len(lake.snapshots("sales.orders")) == 1


def test_a_client_that_has_the_table_as_it_is_gets_no_body(client: httpx.Client, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    tag = client.get("/namespaces/sales/tables/orders").headers["etag"]
    response = client.get("/namespaces/sales/tables/orders", headers={"If-None-Match": tag})
    assert (response.status_code, response.content) == (304, b"")
    lake.append("sales.orders", ROWS)
    response = client.get("/namespaces/sales/tables/orders", headers={"If-None-Match": tag})
    assert response.status_code == 200
    assert response.headers["etag"] != tag


def test_no_secret_is_in_what_a_client_is_told(tmp_path: Path) -> None:
    secret = "WORD-THAT-NOBODY-SAYS"
    with lakeward.connect(
        registry=tmp_path / "registry.db", warehouse=tmp_path / "warehouse", s3_access_key="key", s3_secret_key=secret
    ) as lake:
        lake.create_table("sales.orders", ROWS.schema)
        url, token = lake.serve()
        headers = {"Authorization": f"Bearer {token}"}
        for path in ("config", "namespaces", "namespaces/sales/tables/orders"):
            assert secret not in httpx.get(f"{url}/v1/{path}", headers=headers).text


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_may_hold_any_character(
    client: httpx.Client, catalog: RestCatalog, lake: lakeward.Lake, name: str
) -> None:
    lake.create_table((name, "in " + name, name), ROWS.schema)
    lake.append((name, "in " + name, name), ROWS)
    encoded = f"{quote(name, safe='')}%1F{quote('in ' + name, safe='')}"
    listed = load(client, f"{encoded}/tables")["identifiers"]
    assert listed == [{"namespace": [name, "in " + name], "name": name}]
    assert load(client, f"{encoded}/tables/{quote(name, safe='')}")["metadata"]["table-uuid"]
    assert catalog.load_table((name, "in " + name, name)).scan().to_arrow().num_rows == 3


def test_while_somebody_holds_what_is_pending_the_answer_is_503_and_never_an_older_view(tmp_path: Path) -> None:
    with lakeward.connect(
        registry=tmp_path / "registry.db", warehouse=tmp_path / "warehouse", hold_timeout_seconds=0.2
    ) as lake:
        lake.create_table("sales.orders", ROWS.schema)
        lake.append("sales.orders", ROWS)
        url, token = lake.serve()
        path, headers = f"{url}/v1/namespaces/sales/tables/orders", {"Authorization": f"Bearer {token}"}
        with leases.held(lake.registry, snapshots.hold_name(lake.table("sales.orders")), seconds=60):
            response = httpx.get(path, headers=headers)
            assert response.status_code == 503
            assert error(response)["type"] == "ServiceUnavailableException"
            assert int(response.headers["retry-after"]) > 0
            writer = httpx.get(path, headers={**headers, "X-Lakeward-Pending": "skip"})
            assert writer.status_code == 200
        assert httpx.get(path, headers=headers).json()["metadata"]["current-snapshot-id"] > 0


def test_a_metadata_file_that_is_gone_is_named_in_the_words_that_clients_look_for(
    client: httpx.Client, lake: lakeward.Lake
) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    location = load(client, "sales/tables/orders")["metadata-location"]
    Path(local_path(location)).unlink()
    response = client.get("/namespaces/sales/tables/orders")
    found = error(response)
    assert found["message"].startswith(f"Failed to open input stream for file: {location}")
    assert "`lakeward repair sales.orders`" in found["message"]
    assert (found["type"], found["code"]) == ("NotFoundException", 404)
    lake.repair("sales.orders")
    assert load(client, "sales/tables/orders")["metadata"]["location"] == lake.table("sales.orders").location


# PyIceberg ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_version", [2, 3])
def test_pyiceberg_reads_exactly_the_registered_rows(
    catalog: RestCatalog, lake: lakeward.Lake, format_version: int
) -> None:
    lake.create_table("sales.orders", ROWS.schema, format_version=format_version)
    for expected in (3, 6, 9):
        lake.append("sales.orders", ROWS)
        table = catalog.load_table("sales.orders")
        assert table.metadata.format_version == format_version
        assert table.scan().to_arrow().num_rows == expected
    read = catalog.load_table("sales.orders").scan().to_arrow()
    assert sorted(read["id"].to_pylist()) == sorted(ROWS["id"].to_pylist() * 3)


def test_pyiceberg_sees_namespaces_and_tables_and_what_is_missing(catalog: RestCatalog, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    assert catalog.list_namespaces() == [("sales",)]
    assert catalog.list_tables("sales") == [("sales", "orders")]
    assert catalog.table_exists("sales.orders")
    assert not catalog.table_exists("sales.nope")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("sales.nope")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("nope")


def test_pyiceberg_reads_rows_of_an_older_schema_under_the_new_one(catalog: RestCatalog, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    lake.append("sales.orders", ROWS)
    lake.rename_column("sales.orders", "name", "label")
    lake.add_column("sales.orders", "price", "double")
    read = catalog.load_table("sales.orders").scan().to_arrow().sort_by("id")
    assert read.to_pydict() == {"id": [1, 2, 3], "label": ["a", "b", None], "price": [None] * 3}


def test_a_renamed_table_is_found_under_its_new_name_alone(catalog: RestCatalog, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    lake.append("sales.orders", ROWS)
    lake.rename_table("sales.orders", "sales.purchases")
    assert catalog.load_table("sales.purchases").scan().to_arrow().num_rows == 3
    with pytest.raises(NoSuchTableError):
        catalog.load_table("sales.orders")


def test_a_table_made_again_under_an_old_name_is_empty(catalog: RestCatalog, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    lake.append("sales.orders", ROWS)
    before = catalog.load_table("sales.orders")
    lake.drop_table("sales.orders")
    lake.create_table("sales.orders", ROWS.schema)
    after = catalog.load_table("sales.orders")
    assert after.metadata.table_uuid != before.metadata.table_uuid
    assert after.scan().to_arrow().num_rows == 0


def test_many_clients_at_once_get_one_snapshot_of_all_that_was_registered(
    catalog: RestCatalog, lake: lakeward.Lake
) -> None:
    lake.create_table("sales.orders", ROWS.schema)
    for _ in range(5):
        lake.append("sales.orders", ROWS)
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda _: catalog.load_table("sales.orders").scan().to_arrow().num_rows, range(16)))
    assert counts == [15] * 16
    assert len(lake.snapshots("sales.orders")) == 1


def test_a_reader_sees_every_row_that_was_registered_before_it_asked(catalog: RestCatalog, lake: lakeward.Lake) -> None:
    lake.create_table("sales.orders", ROWS.schema)

    def append_and_read(_: int) -> tuple[int, int]:
        lake.append("sales.orders", ROWS)
        registered = lake.table("sales.orders").row_count
        return registered, catalog.load_table("sales.orders").scan().to_arrow().num_rows

    with ThreadPoolExecutor(4) as threads:
        for registered, read in threads.map(append_and_read, range(40)):
            assert registered <= read <= 120
    assert catalog.load_table("sales.orders").scan().to_arrow().num_rows == 120

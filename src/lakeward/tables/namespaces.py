"""Namespaces of the registry's warehouse."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from lakeward.db import dialect
from lakeward.db.retry import retried
from lakeward.errors import NamespaceAlreadyExists, NamespaceNotEmpty, NamespaceNotFound
from lakeward.names import NamespaceName, parse_namespace
from lakeward.registry.handle import Registry
from lakeward.tables.records.properties import check_texts
from lakeward.tables.records.tables import Namespace
from lakeward.tables.sql import namespaces, tables


def find(connection: sa.Connection, registry: Registry, levels: tuple[str, ...]) -> Namespace:
    """A namespace by its levels. Raises NamespaceNotFound."""
    found = namespaces.by_levels(connection, registry.warehouse.warehouse_id, levels)
    if found is None:
        error = NamespaceNotFound(f"Namespace does not exist: {'.'.join(levels)}")
        error.sought = levels
        raise error
    return found


def load(registry: Registry, name: NamespaceName) -> Namespace:
    """A namespace. Raises NamespaceNotFound, InvalidName."""
    with registry.database.read() as connection:
        return find(connection, registry, parse_namespace(name))


def list_namespaces(
    registry: Registry, parent: NamespaceName = (), *, after: str = "", limit: int | None = None
) -> list[Namespace]:
    """Those below `parent` (all, without one), at any depth, by path. `after` is the last path of the page before.

    Raises:
        NamespaceNotFound: the parent does not exist.
    """
    levels = parse_namespace(parent) if parent else ()
    with registry.database.read() as connection:
        if levels:
            find(connection, registry, levels)
        return namespaces.below(connection, registry.warehouse.warehouse_id, levels, after, limit)


@retried
def create(
    registry: Registry,
    name: NamespaceName,
    properties: Mapping[str, str] | None = None,
    *,
    if_absent: bool = False,
) -> Namespace:
    """Make a namespace; its parents need not exist.

    Raises:
        NamespaceAlreadyExists: unless `if_absent`; then the one that exists is returned as it is.
        InvalidName: a level is empty, too long or holds control characters.
    """
    levels = parse_namespace(name)
    check_texts(properties or {})
    warehouse_id = registry.warehouse.warehouse_id
    with registry.database.transaction() as connection:
        is_there = namespaces.by_levels(connection, warehouse_id, levels) is not None
        if not is_there:
            try:
                with connection.begin_nested():
                    namespaces.insert(connection, warehouse_id, levels, dict(properties or {}), dialect.now(connection))
            except sa.exc.IntegrityError:  # another process was quicker
                is_there = True
        if is_there and not if_absent:
            raise NamespaceAlreadyExists(f"Namespace already exists: {'.'.join(levels)}")
        return find(connection, registry, levels)


def ensure(registry: Registry, name: NamespaceName, properties: Mapping[str, str] | None = None) -> Namespace:
    """Make a namespace; one that exists is returned as it is. Raises InvalidName, InvalidInput."""
    return create(registry, name, properties, if_absent=True)


@retried
def set_properties(registry: Registry, name: NamespaceName, properties: Mapping[str, str]) -> Namespace:
    """Replace all properties. Raises NamespaceNotFound, InvalidInput."""
    check_texts(properties)
    with registry.database.transaction() as connection:
        found = find(connection, registry, parse_namespace(name))
        namespaces.set_properties(connection, found.namespace_id, dict(properties))
        return find(connection, registry, found.levels)


@retried
def drop(registry: Registry, name: NamespaceName) -> None:
    """Drop a namespace that is empty. Raises NamespaceNotFound, NamespaceNotEmpty."""
    levels = parse_namespace(name)
    with registry.database.transaction() as connection:
        found = find(connection, registry, levels)
        if tables.any_in_namespace(connection, found.namespace_id):
            raise _not_empty(levels, "tables")
        if namespaces.below(connection, found.warehouse_id, levels, limit=1):
            raise _not_empty(levels, "namespaces")
        try:
            with connection.begin_nested():
                namespaces.delete(connection, found.namespace_id)
        except sa.exc.IntegrityError:  # a table was made in it meanwhile
            raise _not_empty(levels, "tables") from None


def _not_empty(levels: tuple[str, ...], what: str) -> NamespaceNotEmpty:
    return NamespaceNotEmpty(f"Namespace {'.'.join(levels)} is not empty: it holds {what}; drop them first")

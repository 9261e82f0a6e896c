"""The server as a program of its own: `lakeward serve`."""

from __future__ import annotations

import ipaddress
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from lakeward.astha import AsthaConfig
from lakeward.catalog.app import create_app
from lakeward.catalog.listening import listening_socket, make_server
from lakeward.components.supervisor import COMPONENTS, configured, from_settings, running
from lakeward.errors import InvalidSetting
from lakeward.log import retention as log_retention
from lakeward.maintenance import database_upkeep, operations_upkeep
from lakeward.maintenance.recovery import recover
from lakeward.registry import HasRegistry, Registry, registry_of
from lakeward.registry.repeated import repeated
from lakeward.retry import Deadline
from lakeward.tables import retirement

DEFAULT_PORT = 8181
SUPERSEDED_SECONDS = 60.0  # between two looks for metadata that nobody needs any more
STOP_SECONDS = 5.0  # for what runs in the background, once requests are over


def serve(
    lake: Registry | HasRegistry,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    components: Iterable[str] | None = None,
) -> None:
    """Serve until interrupted, by SIGINT or SIGTERM.

    Meanwhile the components run, what crashed writers left behind is deleted, topics' retention is enforced, silent sync runs are given up, old operations metadata and
    superseded metadata files go, and the registry's database is looked after. A component that another process runs stands by.
    Only a Lake lets the compactor use Spark, which it starts for the first large group.

    The settings say which components run and how ([components.<name>], [astha]), and how long operations metadata is kept;
    `components` leaves only some of them.

    Raises:
        InvalidSetting: a host that other machines reach, a port that is taken, or a component's setting that cannot be used.
        InvalidInput: there is no component of a name.
    """
    registry = registry_of(lake)
    check_loopback(host)
    made = from_settings(lake)
    chosen = (
        list(made) if components is None else [name for name in components if name in made or name not in COMPONENTS]
    )
    config = configured(AsthaConfig, "astha", {"stop_timeout": STOP_SECONDS / 2, **registry.settings.astha})
    deadline = Deadline(STOP_SECONDS)
    with listening_socket(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listening.getsockname()[1]}"
        with _ended_by_sigterm(), ExitStack() as stack:
            with _uninterrupted():
                server = make_server(create_app(registry, token=token))
                stack.enter_context(database_upkeep.running(registry, deadline))
                stack.enter_context(operations_upkeep.running(registry, deadline=deadline))
                for name, seconds, action in _in_background(registry):
                    stack.enter_context(repeated(registry, name, seconds, action, deadline=deadline))
                others = {name: made[name] for name in chosen if name in made}
                stack.enter_context(running(lake, chosen, config, others, deadline))
            print(f"Lakeward serves warehouse {registry.warehouse.name!r} at {url} (Ctrl-C stops it)", flush=True)
            server.run([listening])


def _in_background(registry: Registry) -> Iterable[tuple[str, float, Callable[[Registry], object]]]:
    """(name, seconds between two, what is done) of what has no module of its own."""
    yield "retention", registry.settings.topic_retention_every_seconds, log_retention.enforce
    yield "recovery", registry.settings.lease_seconds, recover  # no write is dead before its lease is over
    yield "superseded", SUPERSEDED_SECONDS, retirement.end_metadata_quarantine


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, by which service managers stop a program, ends the block as Ctrl-C does: what runs in it is stopped in order,
    and another server need not wait for leases to run out. A program that has a handler of its own keeps it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)  # as a shell reports a program that the signal has ended


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals that end the program wait until the block is over: what has started by half could not be stopped."""
    if threading.current_thread() is not threading.main_thread():  # it gets no signals
        yield
        return
    came: list[int] = []
    before = {
        each: signal.signal(each, lambda number, _: came.append(number)) for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def check_loopback(host: str) -> None:
    """Refuse hosts that other machines reach: there is one token for all, and no TLS.

    Raises:
        InvalidSetting: naming the host.
    """
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidSetting(
            f"host {host!r} can be reached from other machines, and the server has no TLS and no users yet; serve on "
            "127.0.0.1, and put a proxy with TLS before it or reach it through SSH"
        )

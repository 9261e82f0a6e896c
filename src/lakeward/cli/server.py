"""The REST catalog as a program: serve."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.command import Context, command, log_to_stderr


def add_to(app: typer.Typer) -> None:
    command(app, "serve")(serve)


def serve(
    context: Context,
    host: Annotated[str, typer.Option("--host", help="An address of this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8181,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", help="Bearer token that clients must send; better given as LAKEWARD_TOKEN.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve the Iceberg REST catalog.

    What dead writers left behind is cleared first. Ctrl-C stops it.
    """
    from lakeward.registry import open_registry
    from lakeward.server.serve import serve as run

    log_to_stderr()
    settings = context.settings(token=token)
    with open_registry(settings) as registry:
        run(registry, host, port, settings.token)

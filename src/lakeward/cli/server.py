"""The REST catalog as a program: serve."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.command import Context, SparkOptions


def serve(
    context: Context,
    spark: SparkOptions,
    host: Annotated[str, typer.Option("--host", help="An address of this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8181,
    token: Annotated[
        str | None, typer.Option("--token", help="Bearer token that clients must send; better given as LAKEWARD_TOKEN.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="A component that is not to run here; may be given again.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the lakehouse where there is none.")] = False,
) -> None:
    """Serve the Iceberg REST catalog; look after the tables.

    The components run here: schemas, snapshots, compaction, Iceberg's metadata. What dead writers left behind is cleared
    all the time. Of several servers one runs the components, the others stand by. The compactor starts Spark when there is
    a large group to merge. Ctrl-C stops all.
    """
    from lakeward.catalog.ending import end_within
    from lakeward.catalog.serve import serve as run
    from lakeward.components.supervisor import COMPONENTS
    from lakeward.errors import InvalidInput

    left_out = set(without or ())
    if unknown := left_out - set(COMPONENTS):
        raise InvalidInput(f"--without {unknown.pop()!r} is none of {', '.join(COMPONENTS)}")
    settings = context.settings(token=token)
    with context.lake(make=create, attended=False, **spark.settings()) as lake:
        try:
            run(lake, host, port, settings.token, [name for name in COMPONENTS if name not in left_out])
        except (KeyboardInterrupt, SystemExit) as ended:
            end_within(code=ended.code if isinstance(ended, SystemExit) and isinstance(ended.code, int) else 130)
            raise

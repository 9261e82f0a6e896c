"""How the whole command ends: wrong usage told as every other error is, and a reader of the output that goes away early."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from lakeward.cli.command import fail
from lakeward.errors import InvalidInput

WRONG_USAGE = 2
READER_GONE = 128 + 13  # as a shell reports a command that SIGPIPE has ended
# Some releases of Typer bring their own copy of Click; this is the one that it raises.
_UsageError: Any = typer.BadParameter.__base__


class Root(TyperGroup):
    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and end the process, unless `standalone_mode` is false."""
        given = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return self._invoked(given, prog_name, **extra)
        code = self._run(given, prog_name, **extra)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            code = _reader_gone()
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # Typer would end quietly whatever pipe it was
            if not _is_reader_gone():
                raise RuntimeError("a connection broke, and not the one that is written to") from error
            raise typer.Exit(_reader_gone()) from None

    def _invoked(self, args: list[str], prog_name: str | None, **extra: Any) -> Any:
        return super().main(args, prog_name, standalone_mode=False, **extra)

    def _run(self, args: list[str], prog_name: str | None, **extra: Any) -> int:
        try:
            returned = self._invoked(args, prog_name, **extra)
        except _UsageError as error:
            return _wrong_usage(error, "--json" in args)
        except typer.Abort:
            print("Aborted!", file=sys.stderr)
            return 1
        return returned if isinstance(returned, int) else 0


def _wrong_usage(error: Any, json: bool) -> int:
    if not json:
        error.show()
        return int(error.exit_code)
    command = error.ctx.command_path if error.ctx is not None else "lakeward"
    fail(InvalidInput(f"{error.format_message()} See `{command} --help`."), json=True)
    return WRONG_USAGE


def _is_reader_gone() -> bool:
    """Whether nobody reads standard output any more. Other pipes and sockets may break, too."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # errors are always reported
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _reader_gone() -> int:
    """The exit code; what is still in the buffer would fail once more, loudly, when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return READER_GONE

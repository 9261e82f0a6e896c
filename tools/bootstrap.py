#!/usr/bin/env python3
"""Make the project's .venv with everything in it. Needs a Python 3.11 or newer and nothing else.

Written for the standard library alone, because it runs before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
TOOLS = ROOT / ".tools"

# uv must not fetch a Python of its own: the machine's is the one that is tested, and fetching needs one host more.
UV_ENVIRONMENT = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
IS_WATCHED = sys.stderr.isatty()  # uv draws bars then


class SetupFailed(Exception):
    """What stops the set-up, in words that say the way out."""


def say(step: str) -> None:
    print(f"set-up: {step}", flush=True)


def succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def uv_on_path() -> list[str] | None:
    found = shutil.which("uv")
    return [found] if found and succeeds([found, "--version"]) else None


def uv_in_a_venv() -> list[str] | None:
    """uv in a small venv of its own, so that nothing is installed system-wide."""
    uv = TOOLS / "bin" / "uv"
    if succeeds([str(uv), "--version"]):
        return [str(uv)]
    say("uv, which installs packages, into .tools")
    shutil.rmtree(TOOLS, ignore_errors=True)
    made = succeeds([sys.executable, "-m", "venv", str(TOOLS)])
    if made and succeeds([str(TOOLS / "bin" / "python"), "-m", "pip", "install", "-q", "uv"]):
        return [str(uv)]
    shutil.rmtree(TOOLS, ignore_errors=True)
    return None


def uv_in_a_folder() -> list[str] | None:
    """uv by pip --target: Debian's pip refuses to install system-wide, but not into a folder."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(TOOLS), "uv"]
    uv = TOOLS / "bin" / "uv"
    return [str(uv)] if succeeds(install) and succeeds([str(uv), "--version"]) else None


def find_uv() -> list[str]:
    uv = uv_on_path() or uv_in_a_venv() or uv_in_a_folder()
    if uv is None:
        raise SetupFailed(
            "found no uv, and could neither make a virtual environment for it nor install it with pip; "
            "install one of the Debian packages python3-venv and python3-pip, or uv itself, and run this again"
        )
    return uv


def run(command: list[str]) -> None:
    environment = os.environ | UV_ENVIRONMENT
    if IS_WATCHED:
        del environment["UV_NO_PROGRESS"]
    if subprocess.run(command, cwd=ROOT, env=environment).returncode != 0:
        raise SetupFailed(f"this command failed: {' '.join(command)}")


def make_venv(uv: list[str]) -> None:
    """A venv of this very Python; one of another version, or a broken one, is made anew."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    check = f"import sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
    if not succeeds([str(VENV / "bin" / "python"), "-c", check]):
        say(f"an environment of Python {version} in .venv")
        run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(VENV)])


def install(uv: list[str]) -> None:
    say("a hundred packages into .venv, 1.6 GB on the disk: some minutes the first time")
    into = ["--python", str(VENV / "bin" / "python")]
    quiet = [] if IS_WATCHED else ["-q"]
    run([*uv, "pip", "install", *quiet, *into, "-c", "constraints.txt", "-e", ".[spark,s3]", "--group", "dev"])


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  (this file runs on whatever python3 is)
        print(f"set-up: Lakeward needs Python 3.11 or newer, this is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    try:
        uv = find_uv()
        make_venv(uv)
        install(uv)
        say("the packages are there")
    except SetupFailed as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

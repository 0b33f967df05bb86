"""How commands get a password: from a file, a prompt, or the first line of the standard input.

Owns these ways and the options around them. No command takes a password as an argument.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.cli.failures import Failure, reading
from tidelog.cli.options import option

if TYPE_CHECKING:
    from tidelog.protocol.scram import ScramMechanism

PasswordFile: TypeAlias = Annotated[
    Path | None, option("--password-file", metavar="FILE", help="File whose first line is the password.")
]
Mechanisms: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--mechanism",
        metavar="NAME",
        help="SCRAM-SHA-256 or SCRAM-SHA-512. May be repeated. Without it: both.",
    ),
]
Iterations: TypeAlias = Annotated[
    int,
    typer.Option(
        "--iterations",
        min=4096,
        max=16384,
        help="Number of hash iterations. Use the same number for all users.",
    ),
]


def mechanisms_of(names: list[str] | None) -> list[ScramMechanism]:
    """The mechanisms of these names, or all. Raises BadParameter."""
    from tidelog.protocol.scram import ScramMechanism

    known = {each.sasl_name: each for each in ScramMechanism}
    wrong = [name for name in names or () if name.upper() not in known]
    if wrong:
        raise typer.BadParameter(f"expected {' or '.join(known)}, got {wrong[0]}", param_hint="--mechanism")
    return [known[name.upper()] for name in names] if names else list(known.values())


def read_password(file: Path | None) -> str:
    """The password. Raises Failure for an empty one, two that differ, or a file that cannot be read."""
    if file is not None:
        with reading(file):
            password = _first_line(file.read_text())
    elif sys.stdin.isatty():
        password = _asked()
    else:
        password = _first_line(sys.stdin.readline())
    if not password:
        raise Failure("expected a password, got none; give it at the prompt, by --password-file or on stdin")
    return password


def _asked() -> str:
    from getpass import getpass

    password = getpass("Password: ")
    if password and getpass("Again: ") != password:
        raise Failure("the two passwords differ; nothing was changed")
    return password


def _first_line(text: str) -> str:
    return text.partition("\n")[0].removesuffix("\r")

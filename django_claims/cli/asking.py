"""What the verbs share: exit codes, the alias, who asks, durations."""

from __future__ import annotations

import argparse
import getpass
import re
import socket
from collections.abc import Iterable

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import conf
from django_claims.handler import claim_backends

DONE, FOUND, USAGE, NONE_SUCH, UNAVAILABLE, LOST, NOT_YET = 0, 1, 2, 4, 69, 70, 75

OFF = "Claims are off (CLAIMS = None): every claim is granted, and nothing is kept, listed or stopped."

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Read '90', '30s', '5m', '2h' or '1d' as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|[smhd]?)", text.strip(), re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90, 30s, 5m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]


def add_using(parser: CommandParser, *, default: str | None = conf.DEFAULT_ALIAS) -> None:
    which = f"default: {default}" if default else "default: all of them"
    parser.add_argument("--using", metavar="ALIAS", default=default, help=f"An alias of CLAIMS ({which}).")


def add_json(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print one JSON object a line.")


def check_alias(alias: str | None) -> None:
    """Raise CommandError for an alias that is none."""
    if alias is not None and conf.enabled() and alias not in (known := conf.aliases()):
        names = ", ".join(map(repr, known)) or "none"
        raise CommandError(f"CLAIMS has no alias {alias!r} (there is: {names}).", returncode=USAGE)


def asked_by(given: str) -> str:
    """Return who asks: as given, else by the login of this terminal."""
    if given:
        return given
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError, ImportError):  # a container's user need not have a name
        return socket.gethostname()


def limits(aliases: Iterable[str], *, complete: bool = True) -> list[str]:
    """Return what the person who looks cannot see, in sentences."""
    said = []
    for alias in aliases:
        backend = claim_backends[alias]
        if backend.is_process_local:
            said.append(
                f"Alias {alias!r} keeps its claims in the memory of each process: those of other processes "
                f"cannot be seen or stopped from here."
            )
        elif not (complete and backend.supports_complete_listing):
            said.append(f"The store of alias {alias!r} cannot list everything: claims may be held that are not shown.")
    return said


def note(command: BaseCommand, text: str) -> None:
    """Say what is not an answer, apart from the answers."""
    command.stderr.write(command.style.WARNING(text))

"""`claims clear-stop`: let it run again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import conf
from django_claims.cli.asking import DONE, NONE_SUCH, OFF, add_json, add_using
from django_claims.cli.words import clean, say, say_json
from django_claims.names import checked
from django_claims.stop_flags import clear_stop

HELP = "Take stops back: what was kept stopped may run again."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+")
    add_using(parser)
    add_json(parser)


def run(command: BaseCommand, options: dict[str, Any]) -> int:
    names = [checked(name) for name in dict.fromkeys(options["names"])]
    if not conf.enabled():
        raise CommandError(OFF, returncode=NONE_SUCH)
    code = DONE
    for name in names:
        if clear_stop(name, using=options["using"]):
            if options["json"]:
                say_json(command, {"name": name, "alias": options["using"], "cleared": True})
            else:
                say(command, f"Cleared: {clean(name)}")
        else:
            code = NONE_SUCH
            command.stderr.write(command.style.ERROR(f"Claim {clean(repr(name))} has no stop."))
    return code

"""`manage.py claims`: parses, and hands on to the verbs in `django_claims.cli`."""

from __future__ import annotations

import argparse
import copy
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims.cli import clear_stop, doctor, listing, release, run, show, stop
from django_claims.cli.asking import UNAVAILABLE, USAGE, check_alias
from django_claims.exceptions import BackendUnavailable, ClaimError, InvalidClaim, InvalidClaimsSetting

VERBS: dict[str, Any] = {
    "list": listing,
    "show": show,
    "stop": stop,
    "clear-stop": clear_stop,
    "release": release,
    "run": run,
    "doctor": doctor,
}


class Command(BaseCommand):
    """See who holds what, stop and release it, run any program under a claim, and check the stores."""

    help = "See who holds what, stop and release it, run any program under a claim, and check the stores."
    requires_system_checks = []  # it is for the night when something is wrong
    stealth_options = ("program",)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that leaves alone what stands after `run NAME --`: the program's own options."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parse = parser.parse_args

        def parse_args(args: Any = None, namespace: Any = None) -> Any:
            words = list(sys.argv[2:] if args is None else args)
            program: list[str] | None = None
            if "--" in words and next((word for word in words if word in VERBS), "") == "run":
                at = words.index("--")
                words, program = words[:at], words[at + 1 :]
            found = parse(words, namespace)
            found.program = program
            return found

        parser.parse_args = parse_args  # type: ignore[method-assign]  # for the shell and for call_command alike
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--skip-checks", action="store_true", help=argparse.SUPPRESS)
        base = [
            action for action in parser._actions if action.option_strings and action.dest not in ("help", "version")
        ]
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for name, verb in VERBS.items():
            sub = verbs.add_parser(name, help=verb.HELP, description=verb.HELP)
            verb.add_arguments(sub)
            group = sub.add_argument_group("options of all commands")
            for action in base:
                again = copy.copy(action)
                again.default = argparse.SUPPRESS  # what stands before the verb stays
                group._add_action(again)

    def handle(self, *args: Any, **options: Any) -> None:
        from_shell = bool(getattr(self, "_called_from_command_line", False))
        try:
            check_alias(options.get("using"))
            code = VERBS[options["verb"]].run(self, options)
            self.stdout.flush()
        except BackendUnavailable as error:
            raise CommandError(str(error), returncode=UNAVAILABLE) from error
        except InvalidClaim as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except (ClaimError, InvalidClaimsSetting) as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            if not from_shell:
                raise
            raise SystemExit(128 + 2) from None  # nothing went wrong: no traceback
        except BrokenPipeError:
            if not from_shell:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # 'claims list | head' has seen enough
            raise SystemExit(128 + 13) from None
        if code:
            if from_shell:
                raise SystemExit(code)  # all is said
            raise CommandError(f"claims {options['verb']} ended with {code}.", returncode=code)

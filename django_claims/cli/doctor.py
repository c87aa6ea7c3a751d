"""`claims doctor`: asks the stores themselves whether claims can keep what they promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandParser

from django_claims import conf
from django_claims.backends.base import BaseClaimBackend
from django_claims.cli import doctor_redis
from django_claims.cli.asking import DONE, FOUND, OFF, UNAVAILABLE, add_json, add_using, note
from django_claims.cli.doctor_checks import latency, reach, round_trip, scope
from django_claims.cli.findings import Finding, Level
from django_claims.cli.words import clean, say, say_json
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.handler import claim_backends

HELP = "Ask the stores whether claims can keep what they promise: exit 1 if something FAILs, 69 if one is unreachable."


def add_arguments(parser: CommandParser) -> None:
    add_using(parser, default=None)
    add_json(parser)


def run(command: BaseCommand, options: dict[str, Any]) -> int:
    if not conf.enabled():
        note(command, OFF)
        return DONE
    code, problems = DONE, conf.problems()
    for problem in problems:
        level = Level.FAIL if problem.is_error else Level.WARN
        finding = Finding(id="config", alias=problem.alias, level=level, fact=problem.message, advice=problem.hint)
        _print(command, finding, options["json"])
        code = max(code, FOUND if problem.is_error else DONE)
    broken = {problem.alias for problem in problems if problem.is_error}
    if "" in broken and not isinstance(django_settings.CLAIMS, Mapping):
        return code
    for alias in [options["using"]] if options["using"] else conf.aliases():
        if alias in broken:
            continue
        backend = None
        try:
            backend = claim_backends[alias]
            found = examine(backend)
        except InvalidClaimsSetting as error:
            found = iter([Finding(id="config", alias=alias, level=Level.FAIL, fact=str(error))])
        if not options["json"]:
            say(command, clean(f"{alias}: {backend.describe() if backend else 'unusable'}"))
        for finding in found:
            if finding.level is Level.FAIL:
                code = UNAVAILABLE if finding.id == "reach" else max(code, FOUND)
            _print(command, finding, options["json"])
    return code


def examine(backend: BaseClaimBackend) -> Iterator[Finding]:
    """Check one alias, each store that is behind it."""
    for part in backend.parts:
        where = f"{part.describe()}: " if len(backend.parts) > 1 else ""
        for finding in _examine(part):
            yield replace(finding, fact=where + finding.fact)


def _examine(backend: BaseClaimBackend) -> Iterator[Finding]:
    """Check one store. Stops at once if it does not answer."""
    answered = reach(backend)
    yield answered
    if answered.level is Level.FAIL:
        return
    yield scope(backend)
    try:
        if doctor_redis.is_redis(backend):
            yield from doctor_redis.examine(backend)
        yield from round_trip(backend)
        yield latency(backend)
    except BackendUnavailable as error:  # gone in the middle
        yield Finding(id="reach", alias=backend.alias, level=Level.FAIL, fact=str(error))


def _print(command: BaseCommand, finding: Finding, as_json: bool) -> None:
    if as_json:
        say_json(command, finding.as_dict())
        return
    style = {Level.OK: command.style.SUCCESS, Level.WARN: command.style.WARNING, Level.FAIL: command.style.ERROR}
    say(command, f"{style[finding.level](f'{finding.level.value:<4}')}  {finding.id:<11}  {clean(finding.fact)}")
    if advice := finding.as_dict()["advice"]:
        say(command, f"{'':<19}{clean(advice)}")

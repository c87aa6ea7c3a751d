"""
System checks: the settings judged before the first claim is. Static, without any network.

Each problem has an id (see the checks page of the docs): E… errors, W… warnings. Live checks,
which ask the stores, are `manage.py claims doctor`.
"""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning

from django_claims import conf, setting_checks
from django_claims.backends.base import BaseClaimBackend
from django_claims.exceptions import InvalidClaimsSetting
from django_claims.handler import claim_backends

TAG = "claims"


def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Judge CLAIMS and the CLAIMS_… settings, and ask each backend."""
    found = conf.problems()
    broken = {problem.alias for problem in found if problem.is_error}
    for alias in conf.aliases():
        if alias not in broken:
            found += _ask_backend(alias)
    found += setting_checks.problems([backend.settings for backend in _usable_backends()])
    return [message_of(problem) for problem in found]


def check_deployment(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """With --deploy: what does for development, and not for a site."""
    found = []
    for backend in _usable_backends():
        where = f"CLAIMS[{backend.alias!r}]"
        if backend.is_process_local:
            found.append(
                conf.Problem(
                    "E101",
                    f"{where} keeps its claims in the memory of one process: {_why_local(backend)}It cannot shut out "
                    f"other processes.",
                    f"Set a backend that can:\n{conf.HOW_TO_SET}",
                )
            )
        found += backend.check_deployment()
        found += setting_checks.deployment_problems([backend.settings])
    return [message_of(problem) for problem in found]


def _ask_backend(alias: str) -> list[conf.Problem]:
    try:
        backend = claim_backends.create(conf.alias_settings(alias))
    except InvalidClaimsSetting as error:
        return [conf.Problem("E020", str(error), alias=alias)]
    found = backend.check()
    if backend.is_process_local and backend.settings.implicit:
        found.append(
            conf.Problem(
                "W101",
                f"CLAIMS[{alias!r}] keeps its claims in the memory of one process: {_why_local(backend)}It cannot "
                f"shut out other processes.",
                f"Set a backend that can:\n{conf.HOW_TO_SET}\nIn tests, name MemoryBackend in CLAIMS.",
                alias,
                is_error=False,
            )
        )
    return found


def _why_local(backend: BaseClaimBackend) -> str:
    if backend.settings.implicit:
        return "CLAIMS is not set, and the default cache is of no use for claims. "
    return ""


def _usable_backends() -> list[BaseClaimBackend]:
    found = []
    for alias in conf.aliases():
        try:
            found.append(claim_backends.create(conf.alias_settings(alias)))
        except InvalidClaimsSetting:
            continue  # check_settings says so
    return found


def message_of(problem: conf.Problem) -> CheckMessage:
    make = Error if problem.is_error else Warning
    # After lines to paste, on a line of its own.
    space = "\n" if "\n" in problem.hint else " "
    hint = f"{problem.hint}{space}See docs/checks.md#{problem.id.lower()}.".strip()
    return make(problem.message, hint=hint, id=f"django_claims.{problem.id}")


TAGS = (TAG, Tags.caches)

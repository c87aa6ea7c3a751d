"""What the person at the terminal is told when a command or program may not run."""

from __future__ import annotations

import shlex

from django_claims import conf
from django_claims.claims import Claim
from django_claims.exceptions import AlreadyRunning, CommandRefused, InvalidClaimsSetting, KeptStopped
from django_claims.handler import claim_backends
from django_claims.outcomes import Refused


def refuse_useless_backend(recipe: Claim) -> None:
    """A guess that would exclude nobody is no answer to somebody who asks to be alone. Raises InvalidClaimsSetting."""
    if conf.enabled():
        backend = claim_backends[recipe.using]
        if backend.settings.implicit and backend.is_process_local:
            raise InvalidClaimsSetting(
                f"Nothing is set for claims, and the default cache cannot keep other processes out, so "
                f"{recipe.name!r} would run beside itself. Add to the settings:\n{conf.HOW_TO_SET}\n"
                f"or, to run without claims, CLAIMS = None."
            )


def waiting(refused: Refused, timeout: float | None) -> str:
    """Return the line that says for whom it waits, and how long it will."""
    how_long = "without limit" if timeout is None or timeout == float("inf") else f"up to {timeout:g} s"
    return f"Waiting {how_long}: {refused.error()}"


def refusal(refused: Refused, code: int, waited: float, *, using: str = conf.DEFAULT_ALIAS) -> CommandRefused:
    """Return the error that tells the person at the terminal: who has it, how to look, how to break it."""
    alias = "" if using == conf.DEFAULT_ALIAS else f" --using {shlex.quote(using)}"
    name = shlex.quote(refused.name)

    def line(verb: str, options: str = "") -> str:
        if refused.name.startswith("-"):  # or it would be taken for an option
            return f"manage.py claims {verb}{alias}{options} -- {name}"
        return f"manage.py claims {verb} {name}{options}{alias}"

    lines = [str(refused.error())]
    if waited >= 0.5:
        lines[0] += f" Waited {waited:.1f} s."
    lines.append(f"Look at it:  {line('show')}")
    if refused.flag is not None:
        lines.append(f"Let it run:  {line('clear-stop')}")
        return KeptStopped("\n".join(lines), refused.flag, code)
    if refused.lease is not None:
        lines.append(f"Break it:    {line('release', f' --fence {refused.lease.fence}')}")
    return AlreadyRunning("\n".join(lines), refused.lease, code)

"""What `@single_instance` was told: its arguments, judged when they are written and not when they first matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_claims import conf
from django_claims.claims import Claim
from django_claims.clock import Duration, milliseconds
from django_claims.exceptions import InvalidClaim
from django_claims.names import checked
from django_claims.recipes import claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The arguments of `@single_instance`."""

    name: str | None = None
    key: Any = None
    using: str = conf.DEFAULT_ALIAS
    ttl: Duration | None = None
    timeout: Duration | None = 0.0
    on_refused: str = "fail"
    on_lost: Any = None
    min_hold: Duration = 0.0
    max_hold: Duration | None = None
    exit_code: int | None = None
    stop_on_shutdown: bool | None = None

    def claim(self, name: str, key: Any, *, default_on_lost: str, stop_on_shutdown: bool) -> Claim:
        """Return the recipe for one run."""
        return claim(
            name,
            key=key,
            using=self.using,
            ttl=self.ttl,
            timeout=self.timeout,
            min_hold=self.min_hold,
            max_hold=self.max_hold,
            on_lost=self.on_lost or default_on_lost,  # type: ignore[arg-type]  # judged there
            stop_on_shutdown=stop_on_shutdown if self.stop_on_shutdown is None else self.stop_on_shutdown,
        )

    def judge(self, refusals: tuple[str, ...] = ("fail", "skip")) -> None:
        """Refuse what cannot be used. Raises InvalidClaim, naming the value."""
        if self.name is not None:
            checked(self.name)
        if self.on_refused not in refusals:
            known = f"{', '.join(map(repr, refusals[:-1]))} or {refusals[-1]!r}"
            raise InvalidClaim(f"on_refused should be {known}, not {self.on_refused!r}.")
        key = self.key
        parts = (key,) if isinstance(key, str) else key
        if not (
            parts is None
            or callable(parts)
            or (isinstance(parts, tuple | list) and all(isinstance(part, str) for part in parts))
        ):
            raise InvalidClaim(f"key should be the name of an option or argument, several, or a callable, not {key!r}.")
        code = self.exit_code
        if code is not None and (isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= 255):
            raise InvalidClaim(f"exit_code should be a whole number from 0 to 255, not {code!r}.")
        if self.timeout is not None:
            milliseconds(self.timeout, "timeout", at_least=0)
        self.claim("judged", None, default_on_lost="flag", stop_on_shutdown=False)


def values_of(key: Any, values: dict[str, Any], what: str) -> tuple[Any, ...]:
    """Return the values that a key names. Raises InvalidClaim for one that is not there."""
    names = (key,) if isinstance(key, str) else tuple(key)
    for name in names:
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            raise InvalidClaim(f"key= names the {what} {name!r}, which is not there (there is: {known}).")
    return tuple(values[name] for name in names)

"""
Loggers whose records carry, as `extra`, what they are about: for structured logs.

Every record of this package has the attributes `claim`, `claim_alias`, `claim_fence` and
`claim_holder`, None where it is about none. They are read off the message itself, which has them
as `name=%s alias=%s fence=%s holder=%s`; what a call gives as `extra` goes before. Never an
owner token.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

KEYS = {"name": "claim", "claim": "claim", "alias": "claim_alias", "fence": "claim_fence", "holder": "claim_holder"}

_PLACE = re.compile(r"(?:\b(\w+)=)?%[-+ #0]*\d*(?:\.\d+)?([srdfx%])")


class ClaimLogger(_Adapter):
    """See the module."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.isEnabledFor(level):
            return
        extra: dict[str, Any] = dict.fromkeys(KEYS.values())
        for place, key in _places(str(msg)):
            value = args[place]
            extra[key] = value if value is None or isinstance(value, int) else str(value)
        extra.update(kwargs.pop("extra", None) or {})
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # where we are called, not here
        self.logger.log(level, msg, *args, extra=extra, **kwargs)


@functools.lru_cache(maxsize=256)
def _places(message: str) -> tuple[tuple[int, str], ...]:
    """Return which of the arguments of a message are what its records are about."""
    names = [match[1] for match in _PLACE.finditer(message) if match[2] != "%"]
    return tuple((place, KEYS[name]) for place, name in enumerate(names) if name in KEYS)


def get_logger(name: str) -> ClaimLogger:
    """Return the logger of a module."""
    return ClaimLogger(logging.getLogger(name))

"""What the doctor found: one fact each, under an id that stays, with an advice."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from django_claims.exceptions import ClaimError


class Level(enum.StrEnum):
    OK = "OK"
    WARN = "WARN"  # works, but know about it
    FAIL = "FAIL"  # claims do not do what they promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of one alias."""

    id: str
    alias: str
    level: Level
    fact: str
    advice: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "alias": self.alias,
            "id": self.id,
            "level": self.level.value,
            "fact": self.fact,
            "advice": "" if self.level is Level.OK else self.advice,
        }


class StoreRefused(ClaimError):
    """The store answered a question of the doctor's by an error: it may not be asked."""

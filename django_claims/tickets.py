"""
The ticket of a hold that is handed over: text that carries a secret, the fence and the names.

Only a digest of the secret is stored, so that nobody who reads the store can adopt.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field

from django_claims.tokens import Token


@dataclass(frozen=True, slots=True)
class Ticket:
    """
    What a ticket says.

    `names` and `fence` are None in text that is none of ours: it is then good for nothing,
    which is the store's to say.
    """

    text: str = field(repr=False)
    secret: str = field(repr=False)
    names: tuple[str, ...] | None = None
    fence: int | None = None

    @property
    def digest(self) -> str:
        """What the store has of it. As long as an owner token, whose place it takes."""
        return Token(_letters(hashlib.sha256(self.secret.encode(errors="surrogatepass")).digest()[:16]))


def new_ticket(names: tuple[str, ...], fence: int) -> Ticket:
    secret = Token(secrets.token_urlsafe(16))
    packed = json.dumps([1, secret, fence, *names], ensure_ascii=False, separators=(",", ":"))
    return Ticket(_letters(packed.encode(errors="surrogatepass")), secret, names, fence)


def read_ticket(text: str) -> Ticket:
    try:
        whole = text.strip() + "=" * (-len(text.strip()) % 4)
        packed = base64.b64decode(whole.encode("ascii"), altchars=b"-_", validate=True)
        kind, secret, fence, *names = json.loads(packed.decode(errors="surrogatepass"))
        if kind == 1 and isinstance(secret, str) and isinstance(fence, int) and names:
            return Ticket(text, secret, tuple(map(str, names)), fence)
    except (ValueError, TypeError, RecursionError):
        pass
    return Ticket(text, text)


def _letters(data: bytes) -> str:
    """Return bytes as text that goes through any queue, address or shell."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

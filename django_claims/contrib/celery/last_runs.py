"""When the entries of a schedule were last sent, kept in the store of the claim for the beat that comes next."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from django_claims.backends.base import AcquireRequest, Refusal, Renewal, RenewRequest, new_token
from django_claims.claims import Claim
from django_claims.clock import wall
from django_claims.handler import claim_backends
from django_claims.holders import this_holder
from django_claims.leases import Lease, Progress
from django_claims.logs import get_logger
from django_claims.names import mark_of
from django_claims.recipes import claim

logger = get_logger(__name__)

DAYS = 28
"""For so long they are kept while no beat is active. (More than 30 days memcached takes for a date.)"""

KEEP_MS = DAYS * 24 * 3600 * 1000
TRIES = 5


class Run(NamedTuple):
    """When an entry was last sent, in microseconds after 1970, and how often it was in all."""

    at_us: int
    times: int


class LastRuns:
    """
    The last runs of one schedule: taken over by each beat that becomes active, and written by it alone.

    They lie in the progress of a lease that no listing shows, and that outlives the claim: so they work on
    every backend, and a beat that another has followed is refused when it writes. Made anew for each hold.
    """

    def __init__(self, recipe: Claim, label: str) -> None:
        self.name = mark_of(claim(recipe.name, key="last-runs").name)
        self._alias, self._label = recipe.using, label
        self._token, self._fence = new_token(), 0
        self._left: dict[str, Run] = {}

    def take(self) -> dict[str, Run]:
        """
        Return what the one before has left, and be the one who writes from now on.

        Raises BackendUnavailable; try again with the same object, since what it has read may be in no other
        place. If somebody keeps the name stopped, or the record cannot be read, nothing will be kept; that is
        logged.
        """
        backend = claim_backends[self._alias]
        holder = this_holder(self._label)
        for _ in range(TRIES):
            lease = backend.lease(self.name)
            if lease is not None and lease.progress is not None:
                self._left = runs_of(lease)
            # Our own claim says that the one before is out of it, dead or alive.
            over = lease.fence if lease is not None else None
            try:
                answer = backend.acquire([AcquireRequest(self.name, self._token, KEEP_MS, KEEP_MS // 3, holder, over)])
                if not isinstance(answer, Refusal):
                    # The grant has emptied it. At once, since to read a schedule takes longer than some beats live.
                    self._fence = answer[0].fence
                    self.keep(self._left)
                    return self._left
            except Exception:
                raise
            except BaseException:  # a signal's, between the two: the process ends
                self.keep(self._left)
                raise
        logger.error(
            "The last runs of beat cannot be kept, so the next beat may send some tasks again name=%s", self.name
        )
        return self._left

    def keep(self, runs: Mapping[str, Run]) -> bool:
        """Write them. False: they are no longer ours to write, or gone. Raises BackendUnavailable."""
        progress = Progress(note=f"last runs of {len(runs)} entries", at=wall(), kept=packed(runs))
        request = RenewRequest(self.name, self._token, self._fence, KEEP_MS, progress.pack())
        return claim_backends[self._alias].renew([request])[0].outcome is Renewal.RENEWED


def packed(runs: Mapping[str, Run]) -> str:
    """Return them as text of a quarter the size: the smallest record that a backend takes is one of 64 kB."""
    return base64.b64encode(zlib.compress(json.dumps(runs, separators=(",", ":")).encode())).decode()


def unpacked(text: str) -> dict[str, Run]:
    """Read what packed() wrote. Raises ValueError for anything else."""
    try:
        found = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
        return {str(name): Run(int(at), int(times)) for name, (at, times) in found.items()}
    except (AttributeError, TypeError, zlib.error) as error:
        raise ValueError("not last runs") from error


def runs_of(lease: Lease | None) -> dict[str, Run]:
    """Return the runs in a lease; none if there are none, or none that can be read."""
    if lease is None or lease.progress is None or not lease.progress.kept:
        return {}
    try:
        return unpacked(lease.progress.kept)
    except ValueError:
        logger.error("The last runs of beat cannot be read, and are left out name=%s", lease.name)
        return {}

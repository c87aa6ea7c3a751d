"""
What happened, for those who wish to know.

All are sent robustly (a failing receiver is logged and harms nothing) with `sender=Claim`,
`name` and `alias`. No receiver is ever given an owner token. `claim_lost`, `claim_renewed`,
`claim_renewal_failed` and `stop_observed` may come from the heartbeat thread: do not block there.

- `claim_acquired`: lease, waited (seconds)
- `claim_refused`: lease (who has it, or None), flag (if kept stopped), waited
- `claim_released`: lease, result (ReleaseResult), held_for (seconds)
- `claim_lost`: lease, reason (LossReason), held_for
- `claim_renewed`: lease, margin (seconds that were left to the local deadline), took (seconds that the store took)
- `claim_renewal_failed`: lease, remaining (seconds that are left to the local deadline), error
- `claim_handed_over`: lease (as it was held), valid (seconds)
- `claim_adopted`: lease; sent instead of claim_acquired, since it is the same run
- `stop_requested`, `stop_cleared`: flag
- `stop_observed`: lease, flag
- `claim_force_released`: fence, by
- `shutdown_started`: reason (its sender is None, and it has neither name nor alias)
"""

from typing import Any

from django.dispatch import Signal

claim_acquired = Signal()
claim_refused = Signal()
claim_released = Signal()
claim_lost = Signal()
claim_renewed = Signal()
claim_renewal_failed = Signal()
claim_handed_over = Signal()
claim_adopted = Signal()
stop_requested = Signal()
stop_cleared = Signal()
stop_observed = Signal()
claim_force_released = Signal()
shutdown_started = Signal()

sender: Any = None
"""The class Claim, which puts itself here: it lies above those that send."""


def send(signal: Signal, **about: Any) -> None:
    """Send a signal, with Claim as its sender."""
    signal.send_robust(sender=sender, **about)

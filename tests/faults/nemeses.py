"""All that hurts the processes and the store, by name."""

from __future__ import annotations

from tests.faults.clock_nemeses import ClientClock, ClockSetBack
from tests.faults.nemesis import Nemesis
from tests.faults.process_nemeses import Crowd, Force, Fork, Kill, Starve, Stop, StopAtWrite, Terminate
from tests.faults.store_nemeses import (
    Cut,
    Delay,
    Evict,
    Freeze,
    LateThenSilent,
    LoseReply,
    Restart,
    RestartEmpty,
    Swallow,
    Throttle,
    Wipe,
)
from tests.faults.stores import Store

NEMESES: dict[str, type[Nemesis]] = {
    nemesis.name: nemesis
    for nemesis in (
        Kill, Terminate, Stop, StopAtWrite, Fork, Crowd, Starve, Force,
        Cut, Swallow, Delay, LateThenSilent, Throttle, LoseReply,
        Freeze, Restart, RestartEmpty, Wipe, Evict,
        ClientClock, ClockSetBack,
    )
}  # fmt: skip


def for_store(store: type[Store]) -> list[str]:
    """Return the names of the nemeses that there are for a store."""
    return [name for name, nemesis in NEMESES.items() if nemesis.fits(store)]

"""
Many holds in greenlets: `greenlets.py first | after | loaded | limits | spin | lock`.

Patched before the app is imported, after that, or after its store was asked.
"""

import sys
import time

HOW = sys.argv[1]


def patch():
    from gevent import monkey

    monkey.patch_all()


if HOW in ("first", "spin"):
    patch()

import django  # noqa: E402

django.setup()

from django_claims import BackendUnavailable, claim, claim_backends  # noqa: E402
from django_claims.backends.base import within  # noqa: E402
from django_claims.clock import clock  # noqa: E402

if HOW in ("loaded", "lock"):
    assert claim("first").available()
if HOW not in ("first", "spin"):
    patch()

import gevent  # noqa: E402


def take(name):
    """Acquire; on a busy machine fifty new connections may take longer than one of so short a TTL waits."""
    for _ in range(20):
        try:
            return claim(name, ttl=5).acquire()
        except BackendUnavailable:
            time.sleep(0.1)
    raise AssertionError(name)


def hold(number):
    """Hold for more than two TTLs, cooperatively, and say whether it was kept."""
    with take(f"greenlet-{number}") as mine:
        ends = clock() + 11
        while clock() < ends:
            time.sleep(0.05)
        return mine.held and mine.verify()


def watch():
    with claim("watched", ttl=2) as mine:
        time.sleep(0.1)  # a turn for the greenlet that renews
        gevent.spawn(spin).join()
        return mine.held, mine.lost


def spin():
    """Let nobody else run."""
    ends = clock() + 4
    while clock() < ends:
        pass


def limit(seconds, works):
    """Take so long within a limit, and say what one verb has when that is over."""
    with within(seconds):
        time.sleep(works)
    return claim_backends["default"].verb_timeout()


def inside(directory, crowd, most):
    """Be inside, and let others run meanwhile; note how many were inside at once."""
    with directory.locked(20):
        crowd.append(1)
        most.append(len(crowd))
        time.sleep(0.02)
        crowd.pop()


if HOW == "lock":
    directory, crowd, most = claim_backends["default"]._directory, [], []
    gevent.joinall([gevent.spawn(inside, directory, crowd, most) for _ in range(5)], timeout=20)
    print(max(most))
elif HOW == "limits":
    # The second one begins within the first one's time, and ends after it.
    greenlets = [gevent.spawn(limit, 0.01, 0.2), gevent.spawn_later(0.1, limit, 60, 0.2)]
    print(*[greenlet.get(timeout=20) for greenlet in greenlets])
elif HOW == "spin":
    print(*gevent.spawn(watch).get(timeout=20))
else:
    greenlets = [gevent.spawn_later(number * 0.05, hold, number) for number in range(50)]
    print(sum(greenlet.get(timeout=30) for greenlet in greenlets))
print("over", clock(), flush=True)

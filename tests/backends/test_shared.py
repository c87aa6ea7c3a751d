"""One object for each key, and what lies idle."""

from collections import deque

from django_claims.backends.shared import OnePerKey, end_all
from tests.helpers import run_in_thread
from tests.test_fork import in_child


def test_an_object_is_made_once_for_each_key():
    shared = OnePerKey()

    first = shared.get("a", object)

    assert shared.get("a", object) is first
    assert shared.get("b", object) is not first
    assert len(shared.all()) == 2


def test_who_is_asked_for_one_in_the_middle_of_making_it_gets_the_one_that_stays():
    """As a signal handler that takes a claim while its own thread is in here."""
    shared, seen = OnePerKey(), []

    def make():
        if not seen:
            seen.append(None)
            seen.append(shared.get("a", object))
        return object()

    assert run_in_thread(lambda: shared.get("a", make)) is seen[1]


def test_a_child_waits_for_no_thread_of_its_parent():
    shared = OnePerKey()

    with shared._lock:
        assert in_child(lambda: run_in_thread(lambda: shared.get("a", lambda: "made"))) == "made"


def test_what_fails_to_end_keeps_nothing_else_from_it():
    ended = []

    def end(thing):
        ended.append(thing)
        if thing == 2:
            raise OSError("broken pipe")

    idle = deque([1, 2, 3])
    end_all(idle, end)

    assert (ended, list(idle)) == ([3, 2, 1], [])

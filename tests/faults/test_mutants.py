"""Each seeded mistake is caught, by the rule that it breaks. A checker that finds none has failed."""

import copy

import pytest

from tests.faults.mutants import MUTANTS

TRIES = 6


def caught(hurt, name):
    """Look for some rounds; return what was found in the last one."""
    mutant = MUTANTS[name]
    for seed in range(TRIES):
        checker = hurt(
            "redis", *mutant.nemeses, seed=seed, seconds=mutant.seconds, mutant=name, **copy.deepcopy(mutant.how)
        )
        if any(checker.found()[rule] for rule in mutant.rules):
            return True
    return False


def test_a_broken_backend_is_caught(hurt):
    assert caught(hurt, "release_without_owner")


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seeded_mistake_is_caught(hurt, name):
    assert caught(hurt, name)

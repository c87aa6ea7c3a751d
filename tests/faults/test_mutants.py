"""Each seeded mistake is caught, by the rule that it breaks. A checker that finds none has failed."""

import copy
import re

import pytest

from tests.faults.mutants import MUTANTS

TRIES = 6
OF_THE_MUTANT = re.compile(r"(Type|Attribute|Name|Key|Index|Value|Runtime|Assertion|Import)Error")


def caught(hurt, name):
    """Look for some rounds. Say whether it was found for what it is: a mutant that breaks down proves nothing."""
    mutant = MUTANTS[name]
    for seed in range(TRIES):
        checker = hurt(
            "redis", *mutant.nemeses, seed=seed, seconds=mutant.seconds, mutant=name, **copy.deepcopy(mutant.how)
        )
        assert not [e["text"] for e in checker.runs.kinds["crash"] if OF_THE_MUTANT.search(e["text"])]
        if any(found.rule == mutant.rule and re.search(mutant.says, found.text) for found in checker.violations):
            return True
    return False


def test_a_broken_backend_is_caught(hurt):
    assert caught(hurt, "release_without_owner")


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seeded_mistake_is_caught(hurt, name):
    assert caught(hurt, name)

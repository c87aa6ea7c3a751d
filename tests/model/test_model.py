"""
The model holds what it promises in every state that there is, and each seeded mistake breaks it.

Needs spin and a C compiler. A step of the model is a step of the store or of a process; between any two of them time
may go on, messages be lost, data be lost, processes die and an operator ask for a stop.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import missing

MODEL = Path(__file__).parent / "claims.pml"
MUTANTS = {
    "HELD_IS_A_FLAG": "HELD|told",  # somebody else still says "held" at a grant
    "CHECK_THEN_SET": "deadline",
    "DEADLINE_FROM_REPLY": "deadline",
    "FENCE_RESETS": "fence>last_granted",
    "PLAIN_COUNTER": "fence>last_granted",
    "RENEW_WITHOUT_OWNER": r"owner==p",
    "RENEW_CREATES": "last_granted",
    "RELEASE_WITHOUT_OWNER": r"owner==p",
    "REVIVED": "deadline",
    "STOP_BY_NAME": "stop_fence",
    "ZOMBIE": r"state\[p\]!=",
}


@pytest.fixture
def search(tmp_path):
    """Look at all states of a variant: `search("FOLLOW_DEAD", HORIZON=4)`; what broke, or '', and how many."""
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc", "clang"))), None)
    if not shutil.which("spin") or not compiler:
        missing("no spin, or no C compiler")

    def run(*defined, **numbers):
        words = [f"-D{name}" for name in defined] + [f"-D{name}={number}" for name, number in numbers.items()]
        subprocess.run(["spin", *words, "-a", str(MODEL)], cwd=tmp_path, check=True, timeout=60, capture_output=True)
        build = [compiler, "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=1500", "-o", "pan", "pan.c"]
        subprocess.run(build, cwd=tmp_path, check=True, timeout=60)
        done = subprocess.run(["./pan", "-m300000"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
        said = done.stdout
        broken = re.search(r"assertion violated (.*) \(at depth", said)
        assert broken or ("errors: 0" in said and "Search not completed" not in said), said[-2000:]
        return (broken[1] if broken else ""), int(re.search(r"(\d+) states, stored", said)[1])

    return run


def test_no_promise_breaks_in_any_state(search):
    broken, states = search(HORIZON=4)

    assert broken == ""
    assert states > 100_000


@pytest.mark.long
@pytest.mark.parametrize("variant", ["", "FOLLOW_DEAD"])
def test_no_promise_breaks_in_any_state_of_a_longer_time(search, variant):
    broken, states = search(*filter(None, [variant]))

    assert broken == ""
    assert states > 5_000_000


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_seeded_mistake_breaks_a_promise(search, mutant):
    broken, _ = search(f"MUTANT_{mutant}")

    assert re.search(MUTANTS[mutant], broken), broken

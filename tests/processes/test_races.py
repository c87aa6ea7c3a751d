"""Of several that start at the same moment, one wins."""

import uuid
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.processes.children import Worker
from tests.processes.conftest import FURTHER, new_store, sqlite_if_long

RIVALS = 6
NAME = "command:night.report"


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []


def run_rounds(rivals, job, rounds, tmp_path):
    """Have long-living processes take a claim at the same moment, time and again; return the fences in turn."""
    fences = []
    for number in range(rounds):
        gate = tmp_path / f"round-{number}"
        for rival in rivals:
            rival.begin("race", job, str(gate), ttl=30)

        gate.touch()
        won = [(rival, fence) for rival in rivals if (fence := rival.answer()) is not None]

        assert len(won) == 1, f"round {number}: {len(won)} have it at once"
        winner, fence = won[0]
        fences.append(fence)
        assert winner.ask("release", job) == "released"
    return fences


def run_command_rounds(rivals, rounds, tmp_path):
    """The same by the command; the winner stays until all others were refused."""
    for number in range(rounds):
        gate, over, book = (tmp_path / f"{what}-{number}" for what in ("gate", "over", "book"))
        arguments = ("report", "--do", "line", "--to", str(book), "--until", str(over))
        for rival in rivals:
            rival.begin("race_command", str(gate), *arguments)

        gate.touch()
        # The winner answers only when it is told to go; the answers of the others are there before.
        winner = wait_until(lambda: winner_of(rivals, read_lines(book)), 20)  # noqa: B023
        refused = [rival.answer() for rival in rivals if rival is not winner]
        over.touch()
        won = winner.answer()

        assert len(read_lines(book)) == 1, f"round {number}"
        assert (won["code"], won["out"], won["err"]) == (0, "ready\n", "")
        for answer in refused:
            assert answer["code"] == 75
            assert answer["out"] == ""
            assert_is_clean_refusal(answer["err"], winner.pid)


def winner_of(rivals, pids):
    return next((rival for rival in rivals if str(rival.pid) in pids), None)


def assert_is_clean_refusal(text, pid):
    """Three lines, and no stray one."""
    held, look, break_ = text.splitlines()
    assert f"Claim '{NAME}' is held by" in held
    assert f"pid {pid}," in held
    assert f"claims show {NAME}" in look
    assert f"claims release {NAME} --fence" in break_


@pytest.fixture(scope="module", params=["redis", "sqlite", *FURTHER])
def arena(request, tmp_path_factory):
    """A store for all rounds, since six processes take a while to start."""
    return new_store(request, tmp_path_factory.mktemp("arena"))


@pytest.fixture(scope="module")
def rivals(arena):
    started = [Worker(env=arena.env, cwd=Path(arena.env["JOBS_DIR"])) for _ in range(RIVALS)]
    try:
        assert len({rival.ask("pid") for rival in started}) == RIVALS
        yield started
    finally:
        for rival in started:
            rival.close()


@pytest.fixture
def job():
    return f"job-{uuid.uuid4().hex}"


def test_one_of_six_processes_wins_each_round(rivals, job, tmp_path):
    fences = run_rounds(rivals, job, 3, tmp_path)

    assert fences == sorted(set(fences)), "fences grow in order of grant"


@pytest.mark.long
def test_one_of_six_processes_wins_each_of_thirty_rounds(rivals, job, tmp_path):
    fences = run_rounds(rivals, job, 30, tmp_path)

    assert fences == sorted(set(fences)), "fences grow in order of grant"


def test_one_of_six_runs_of_a_command_does_the_work_each_round(rivals, tmp_path):
    run_command_rounds(rivals, 3, tmp_path)


@pytest.mark.long
def test_one_of_six_runs_of_a_command_does_the_work_in_each_of_thirty_rounds(rivals, tmp_path):
    run_command_rounds(rivals, 30, tmp_path)


@sqlite_if_long
def test_one_of_six_fresh_programs_does_the_work_and_five_exit_75(manage, store, tmp_path, gate):
    book = tmp_path / "book"
    arguments = ("report", "--do", "line", "--to", str(book), "--until", str(gate))
    programs = [manage(store, *arguments) for _ in range(RIVALS)]

    wait_until(lambda: len([p for p in programs if p.process.poll() is not None]) == RIVALS - 1, 40)
    gate.touch()
    done = {program.pid: program.done() for program in programs}

    (pid,) = read_lines(book)
    winner = done.pop(int(pid))
    assert (winner.code, winner.out, winner.err) == (0, "ready", "")
    for refused in done.values():
        assert refused.code == 75
        assert refused.out == ""
        assert_is_clean_refusal(refused.err, pid)


def test_one_of_six_gets_a_lease_that_expires(rivals, worker, arena, job, tmp_path):
    """They try without a pause, so that all of them see the very moment at which it expires."""
    holder, over = worker(arena), tmp_path / "over"
    old = holder.ask("acquire", job, ttl=1)
    holder.process.kill()
    holder.process.wait(10)
    answered = {rival: len(rival.lines) for rival in rivals}
    for rival in rivals:
        rival.begin("contend", job, str(over), ttl=30, follow_dead=False)

    wait_until(lambda: any(len(rival.lines) > answered[rival] for rival in rivals), 20)
    over.touch()  # until now the others go on trying, against the lease that is the winner's
    answers = [rival.answer() for rival in rivals]

    won = [answer for answer in answers if answer["fence"] is not None]
    assert len(won) == 1
    assert won[0]["fence"] > old
    # The kernel ends a lease on files with its holder, before anybody has tried.
    assert arena.kind == "file" or all(answer["tries"] > 1 for answer in answers), "all saw it expire"


def test_one_of_six_takes_over_from_a_dead_holder(rivals, worker, arena, job, gate):
    """By the short way of rule 9: all of them find it dead at the same moment."""
    holder = worker(arena)
    old = holder.ask("acquire", job, ttl=60)
    holder.process.kill()
    holder.process.wait(10)
    for rival in rivals:
        rival.begin("race", job, str(gate), ttl=30)

    gate.touch()
    won = [fence for rival in rivals if (fence := rival.answer()) is not None]

    assert len(won) == 1
    assert won[0] > old

"""FileBackend between real processes: races, deaths, forks, stops and strangers."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from django_claims.backends import file_places
from django_claims.backends.base import AcquireRequest, Refusal, Released, ReleaseRequest, Renewal, RenewRequest
from django_claims.backends.file import FileBackend
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable
from django_claims.holders import this_holder
from django_claims.test.waiting import wait_until
from tests.conftest import missing

ROOT = Path(__file__).parent.parent.parent

PRELUDE = """
import os, subprocess, sys, time
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
from django_claims.backends import file_places
from django_claims.backends.base import AcquireRequest, ReleaseRequest, RenewRequest
from django_claims.backends.file import FileBackend
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.holders import this_holder
file_places.temporary_places = list
backend = FileBackend(AliasSettings(alias="default", backend="", options={"directory": sys.argv[1]}))
def take(name="job", token=None, ttl_ms=60_000):
    request = AcquireRequest(name, token or f"t{os.getpid()}", ttl_ms, 20_000, this_holder())
    return isinstance(backend.acquire([request]), list)
def say(*words):
    print(*words, flush=True)
def ask():
    return sys.stdin.readline().strip()
"""


class Child:
    """A process that runs some lines after the prelude, spoken with by lines."""

    def __init__(self, directory, code, **how):
        environ = {**os.environ, **how.pop("environ", {})}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=how.pop("cwd", ROOT),
            env={**environ, "PYTHONPATH": str(ROOT)},
            **how,
        )
        self.pid = self.process.pid

    def hear(self):
        return self.process.stdout.readline().strip()

    def tell(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setattr(file_places, "temporary_places", list)
    return tmp_path / "claims"


@pytest.fixture
def backend(directory):
    backend = FileBackend(settings_of(directory))
    yield backend
    backend.close()


@pytest.fixture
def start(directory):
    children = []

    def start(code, where=None, **how):
        children.append(Child(where or directory, code, **how))
        return children[-1]

    yield start
    for child in children:
        child.end()


def settings_of(directory, **changes):
    return AliasSettings(**{"alias": "default", "backend": "", "options": {"directory": str(directory)}, **changes})


def request(name="job", token="mine", ttl_ms=60_000):
    return AcquireRequest(name, token, ttl_ms, 20_000, this_holder())


def is_granted(backend, name="job", token="mine"):
    return not isinstance(backend.acquire([request(name, token)]), Refusal)


HOLD = """
say(take(ttl_ms=int(os.environ.get("TTL", 60_000))))
ask()
"""

RACE = """
say("ready")
while line := ask():
    name, start = line.split()
    while clock() < float(start):
        pass
    say(take(name))
"""


@pytest.mark.parametrize(
    "over",
    ["new", "list", pytest.param("ended", marks=pytest.mark.long), pytest.param("released", marks=pytest.mark.long)],
)
def test_of_six_processes_one_wins_each_round(backend, start, over):
    rounds = 40
    code = RACE
    if over == "list":  # all want both names, in different order
        code = RACE.replace(
            "say(take(name))",
            "names = [name, 'also'] if os.getpid() % 2 else ['also', name]\n"
            "    token = f't{os.getpid()}'\n"
            "    wanted = [AcquireRequest(n, token, 60_000, 20_000, this_holder()) for n in names]\n"
            "    say(isinstance(backend.acquire(wanted), list))\n",
        )
    racers = [start(code) for _ in range(6)]
    assert [racer.hear() for racer in racers] == ["ready"] * 6

    for number in range(rounds):
        name = f"race-{number}"
        if over == "ended":
            backend.acquire([request(name, ttl_ms=1)])
            wait_until(lambda name=name: backend.lease(name) is None)
        if over == "released":
            assert is_granted(backend, name)
            assert backend.release([ReleaseRequest(name, "mine")]) == [Released.RELEASED]
        begin = clock() + 0.003
        for racer in racers:
            racer.tell(f"{name} {begin}")
        answers = [racer.hear() for racer in racers]

        assert sorted(answers) == ["False"] * 5 + ["True"], name
        if over == "list":
            assert backend.lease(name).fence == backend.lease("also").fence
            assert backend.force_release("also", backend.lease("also").fence)


def test_no_two_of_six_processes_are_inside_at_once_and_fences_grow(backend, start, tmp_path):
    code = """
say("ready")
ask()
log = os.open(sys.argv[1] + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for turn in range(30):
    while True:
        answer = backend.acquire([AcquireRequest("job", f"{os.getpid()}-{turn}", 60_000, 20_000, this_holder())])
        if isinstance(answer, list):
            break
        time.sleep(0.0005)
    os.write(log, b"in %d\\n" % answer[0].fence)
    os.write(log, b"out %d\\n" % answer[0].fence)
    backend.release([ReleaseRequest("job", f"{os.getpid()}-{turn}")])
say("done")
"""
    racers = [start(code) for _ in range(6)]
    assert [racer.hear() for racer in racers] == ["ready"] * 6

    for racer in racers:
        racer.tell("go")

    assert [racer.hear() for racer in racers] == ["done"] * 6
    lines = (tmp_path / "claims.log").read_text().splitlines()
    fences = [int(line.split()[1]) for line in lines[::2]]
    assert len(fences) == 180
    assert lines == [word for fence in fences for word in (f"in {fence}", f"out {fence}")]
    assert fences == sorted(set(fences))


def test_a_killed_holder_has_its_name_free_at_once(backend, start):
    holder = start(HOLD)
    assert holder.hear() == "True"
    old = backend.lease("job")
    assert not is_granted(backend)

    holder.kill()

    assert backend.lease("job") is None
    assert backend.leases(match="", page=1, per_page=10).total == 0
    (grant,) = backend.acquire([request()])
    assert grant.fence > old.fence


def test_a_holder_that_ends_without_release_has_its_name_free_at_once(backend, start):
    holder = start("say(take())\nask()\n")
    assert holder.hear() == "True"

    holder.tell()
    assert holder.process.wait(30) == 0

    assert is_granted(backend)


def test_the_kernel_knows_across_pid_namespaces(backend, start):
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
        missing("no right to make a pid namespace")
    holder = start("say(take(), os.getpid())\npid = ask()\n")
    assert holder.hear().startswith("True")
    code = PRELUDE + "say(os.getpid(), take())\n"
    asks = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code, str(backend._path)]

    def other():
        return subprocess.run(asks, capture_output=True, text=True, cwd=ROOT, timeout=60).stdout.split()

    assert other() == ["1", "False"]
    holder.kill()
    assert other() == ["1", "True"]


def test_a_stopped_holder_keeps_its_name_for_the_ttl_and_no_longer(backend, start):
    holder = start(
        HOLD
        + "(answer,) = backend.renew([RenewRequest('job', f't{os.getpid()}', 0, 60_000)])\nsay(answer.outcome.name)",
        environ={"TTL": "800"},
    )
    assert holder.hear() == "True"
    lease = backend.lease("job")
    os.kill(holder.pid, signal.SIGSTOP)

    refused_until = clock()
    while not is_granted(backend):
        refused_until = clock()
        assert lease.remaining > 0

    later = backend.lease("job")
    assert later.fence > lease.fence
    assert later.acquired_at >= lease.expires_at
    assert clock() - refused_until < 1
    os.kill(holder.pid, signal.SIGCONT)
    holder.tell()
    assert holder.hear() == "TAKEN"
    assert backend.held("job", "mine")


def test_a_forked_child_that_lives_on_does_not_keep_the_name(backend, start):
    holder = start("""
say(take())
child = os.fork()
if not child:
    say("child", backend.held("job", f"t{os.getppid()}"))
    os.close(1)
    sys.stdin.read()
    os._exit(0)
ask()
""")
    assert holder.hear() == "True"
    assert holder.hear() == "child True"

    os.kill(holder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)

    assert is_granted(backend)


def test_a_forked_child_has_nothing_and_claims_for_itself(backend):
    assert is_granted(backend)
    read, write = os.pipe()

    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            answers = [is_granted(backend, token="child"), is_granted(backend, "other", "child")]
            backend.close()  # leaves what it still has
            answers.append(backend.held("other", "child"))
            os.write(write, repr(answers).encode())
            os.read(read, 0)
            signal.pause()
        os._exit(1)
    os.close(write)
    with os.fdopen(read) as pipe:
        os.set_blocking(pipe.fileno(), True)
        assert os.read(pipe.fileno(), 100) == b"[False, True, True]"
    assert not is_granted(backend, "other")

    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    assert is_granted(backend, "other")
    assert backend.held("job", "mine")


def test_the_exit_of_a_forked_child_ends_nothing(backend):
    assert is_granted(backend)

    pid = os.fork()
    if not pid:
        backend.close()
        os._exit(0)
    os.waitpid(pid, 0)

    assert backend.held("job", "mine")
    backend.close()
    assert backend.held("job", "mine")


def test_forks_amid_requests_of_other_threads_leave_children_that_can_ask(backend):
    over = threading.Event()

    def work():
        while not over.is_set():
            assert is_granted(backend, "busy", "busy")
            backend.release([ReleaseRequest("busy", "busy")])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            pid = os.fork()
            if not pid:
                with contextlib.suppress(BaseException):
                    os._exit(0 if is_granted(backend, f"child-{number}", "child") else 2)
                os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    assert is_granted(backend)


@pytest.mark.parametrize("how", ["", ", close_fds=False"])
def test_a_program_that_the_holder_started_does_not_keep_the_name(backend, start, how):
    holder = start(f"""
say(take())
program = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL{how})
say(program.pid)
ask()
""")
    assert holder.hear() == "True"
    program = int(holder.hear())

    holder.kill()

    try:
        assert is_granted(backend)
    finally:
        os.kill(program, signal.SIGKILL)


def test_a_hold_may_go_from_thread_to_thread_and_outlive_the_first(backend):
    thread = threading.Thread(target=lambda: is_granted(backend))
    thread.start()
    thread.join()

    assert backend.held("job", "mine")
    (answer,) = FileBackend(backend.settings).renew([RenewRequest("job", "mine", 0, 60_000)])
    assert answer.outcome is Renewal.RENEWED
    assert backend.release([ReleaseRequest("job", "mine")]) == [Released.RELEASED]


def test_a_process_stopped_inside_makes_others_unavailable_and_not_hang(directory, start):
    patient = FileBackend(settings_of(directory, store_timeout=0.3))
    assert is_granted(patient, "other")
    inside = start("""
with backend._directory.locked(5):
    say("inside")
    ask()
say(take())
""")
    assert inside.hear() == "inside"
    os.kill(inside.pid, signal.SIGSTOP)

    before = clock()
    with pytest.raises(BackendUnavailable, match=r"another process kept it locked for 0.3 s; is one stopped") as caught:
        patient.acquire([request()])
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert str(directory) in str(caught.value)
    assert 0.3 <= clock() - before < 2
    assert patient.lease("other").name == "other"  # looking takes no lock

    os.kill(inside.pid, signal.SIGCONT)
    inside.tell()
    assert inside.hear() == "True"
    assert not is_granted(patient)
    patient.close()


def test_a_process_killed_inside_leaves_the_directory_usable(backend, start):
    inside = start("with backend._directory.locked(5):\n    say('inside')\n    ask()\n")
    assert inside.hear() == "inside"

    inside.kill()

    assert is_granted(backend)


def test_the_directory_is_the_same_whatever_surrounds_the_process(backend, start, directory, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    assert is_granted(backend)
    surroundings = {"TMPDIR": str(tmp_path / "elsewhere"), "HOME": str(tmp_path / "elsewhere")}
    spelling = f"{tmp_path}/elsewhere/../link/./claims/"

    other = start("say(take(), backend.describe())", where=spelling, cwd=tmp_path / "elsewhere", environ=surroundings)

    assert other.hear() == f"False files in {directory}"


def test_files_of_processes_that_ended_are_removed_by_those_that_come(backend, start, directory):
    for _ in range(3):
        holder = start(HOLD)
        assert holder.hear() == "True"
        holder.kill()
    assert is_granted(backend)

    assert len(list((directory / "processes").iterdir())) == 1


def test_a_program_that_a_dead_wrapper_left_keeps_the_name_until_its_ttl(backend, start):
    # 'claims run' names the program beside itself.
    holder = start("""
from dataclasses import replace
from django_claims.holders import ProcessId, this_process, _start_of
program = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
both = (this_process(), ProcessId(this_process().space, program.pid, _start_of(program.pid)))
holder = replace(this_holder(), processes=both)
say(isinstance(backend.acquire([AcquireRequest("job", "wrapper", 60_000, 20_000, holder)]), list))
say(program.pid)
ask()
""")
    assert holder.hear() == "True"
    program = int(holder.hear())
    holder.kill()

    assert not is_granted(backend)

    os.kill(program, signal.SIGKILL)
    wait_until(lambda: is_granted(backend))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as several users")
class TestUsers:
    STRANGER = 12345

    @pytest.fixture
    def directory(self, monkeypatch):
        """One that other users get to: pytest keeps its own to itself."""
        monkeypatch.setattr(file_places, "temporary_places", list)
        with tempfile.TemporaryDirectory() as above:
            Path(above).chmod(0o755)
            yield Path(above) / "claims"

    def test_a_directory_of_another_user_is_not_believed(self, directory, start):
        directory.mkdir(mode=0o755)
        os.chown(directory, self.STRANGER, self.STRANGER)
        other = start(
            "os.setgid(54321)\nos.setuid(54321)\n"
            "try:\n    take()\nexcept Exception as error:\n    say(type(error).__name__, error)\n"
        )

        assert "belongs to another user (uid 12345)" in other.hear()

    def test_a_file_of_another_user_is_not_believed(self, backend, directory):
        assert is_granted(backend)
        for file in ("lock", "leases", *(f"leases/{path.name}" for path in (directory / "leases").iterdir())):
            os.chown(directory / file, self.STRANGER, self.STRANGER)
            backend._directory.forget()

            with pytest.raises(BackendUnavailable, match=r"belongs to another user \(uid 12345\)"):
                backend.acquire([request(token="other")])

            os.chown(directory / file, 0, 0)
        assert backend.held("job", "mine")

    def test_what_root_makes_in_the_directory_of_another_user_is_that_users(self, directory, start, backend):
        directory.mkdir(mode=0o700)
        os.chown(directory, self.STRANGER, self.STRANGER)
        assert is_granted(backend)

        other = start(f"os.setgid({self.STRANGER})\nos.setuid({self.STRANGER})\nsay(take(), take('other'))\n")

        assert other.hear() == "False True"
        assert {path.stat().st_uid for path in directory.rglob("*")} == {self.STRANGER}

    def test_users_of_one_group_may_share_a_directory(self, directory, start):
        directory.mkdir()
        os.chown(directory, 12345, 777)
        directory.chmod(0o2770)
        as_user = "os.setgroups([777])\nos.setgid({0})\nos.setuid({0})\nos.umask(0o077)\n"

        first = start(as_user.format(12345) + "say(take())\nask()\n")
        assert first.hear() == "True"
        second = start(as_user.format(23456) + "say(take(), take('other'))\nask()\n")
        assert second.hear() == "False True"
        first.kill()
        third = start(as_user.format(34567) + "say(take(), take('other'))\n")

        assert third.hear() == "True False"

    def test_no_right_to_enter_is_unavailable(self, directory, start):
        directory.mkdir(mode=0o700)
        other = start(
            "os.setgid(54321)\nos.setuid(54321)\n"
            "for verb in (take, lambda: backend.lease('job')):\n"
            "    try:\n        verb()\n"
            "    except Exception as error:\n        say(type(error).__name__, type(error.__cause__).__name__, error)\n"
        )

        for _ in range(2):
            said = other.hear()
            assert said.startswith("BackendUnavailable PermissionError")
            assert str(directory) in said

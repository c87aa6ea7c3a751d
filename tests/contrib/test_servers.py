"""Web servers with real workers, and programs: when one ends, what of its claims is free, and when."""

import http.client
import importlib.util
import os
import re
import shutil
import signal
import socket
import sys
import threading
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from django_claims import ClaimError, claim, draining, shutdown
from django_claims import heartbeat as heartbeats
from django_claims.contrib import gunicorn as hooks
from tests.conftest import missing
from tests.helpers import claims_settings, stays, tidy, wait_for_no_threads, wait_until
from tests.processes.children import PROJECT, Child, Worker, end
from tests.processes.conftest import new_store, redis_store

_tidy = pytest.fixture(autouse=True)(tidy)

TESTS = Path(__file__).parent.parent
HOME = [str(PROJECT), str(TESTS.parent)]
SOON = 3.0  # for what is to happen at once, on a machine that has other things to do

PAGES = """
import os, time
from pathlib import Path
from django.http import HttpResponse
from django.urls import path
from django_claims import claim, draining

left = []

def said(*words):
    return HttpResponse(" ".join(map(str, words)))

def leave(request, name, ttl):
    left.append(claim(name, ttl=float(ttl)).acquire())
    return said(os.getpid())

def work(request, until):
    with claim("page", ttl=60) as hold:
        ends = time.monotonic() + 30
        while not (draining() if until == "drain" else Path(until).exists()) and time.monotonic() < ends:
            time.sleep(0.01)
        return said(draining(), hold.held)

def hold(request, seconds):
    with claim("page") as hold:
        time.sleep(float(seconds))
        return said(hold.held)

urlpatterns = [path("leave/<name>/<ttl>", leave), path("until/<until>", work), path("hold/<seconds>", hold)]
"""

WSGI = """
from django.core.wsgi import get_wsgi_application
application = get_wsgi_application()
"""

CONFIG = """
from pathlib import Path
from django_claims.contrib import gunicorn as hooks
from django_claims.contrib.gunicorn import post_worker_init, worker_abort, worker_int

def worker_exit(server, worker):
    hooks.worker_exit(server, worker)
    Path("exited").touch()

bind = "127.0.0.1:0"
workers = 1
control_socket_disable = True
"""

# docs/shutdown.md shows these lines.
ASGI = """
import asyncio

from django.core.asgi import get_asgi_application

from django_claims import release_all, shutdown

django_application = get_asgi_application()


async def application(scope, receive, send):
    if scope["type"] != "lifespan":
        return await django_application(scope, receive, send)
    while (await receive())["type"] != "lifespan.shutdown":
        shutdown.install()  # here, since uvicorn has set its own handlers by now
        await send({"type": "lifespan.startup.complete"})
    await asyncio.to_thread(release_all, "shutdown")
    await send({"type": "lifespan.shutdown.complete"})
"""

PLAIN_ASGI = """
from django.core.asgi import get_asgi_application
application = get_asgi_application()
"""

LAUNCH = """
import runpy, sys
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def children_of(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Server(Child):
    """A web server, and its workers."""

    launcher = "launch.py"

    def __init__(self, directory, store, *arguments):
        store = store.with_settings(ROOT_URLCONF="pages", ALLOWED_HOSTS=["*"])
        env = {**store.env, "PYTHONPATH": os.pathsep.join([str(directory), *HOME])}
        (directory / "launch.py").write_text(LAUNCH)
        (directory / "pages.py").write_text(PAGES)
        super().__init__(str(directory / self.launcher), *arguments, env=env, cwd=directory)
        try:
            self.port = wait_until(self._find_port, 30)
        except BaseException:
            self.close()
            raise

    def _find_port(self):
        found = re.search(r"http://127\.0\.0\.1:(\d+)", "".join(self.errors))
        assert self.process.poll() is None, "".join(self.errors)
        return found and int(found[1])

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, text
            return text
        finally:
            connection.close()

    def begin_get(self, path):
        """Ask, and return what gives the answer, or what came in its place."""
        told = []

        def ask():
            try:
                told.append(self.get(path))
            except (OSError, http.client.HTTPException, AssertionError) as error:
                told.append(repr(error))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()

        def answer():
            thread.join(35)
            return told[0]

        return answer

    def close(self):
        workers = children_of(self.pid) if self.process.poll() is None else []
        for pid in workers:
            end(pid)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        super().close()


def installed(name):
    if importlib.util.find_spec(name) is None:
        missing(f"{name} is not installed")


@pytest.fixture
def started():
    servers = []
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def gunicorn(started, tmp_path):
    """Start gunicorn with one worker: `gunicorn(store, "sync", timeout=30)`."""
    installed("gunicorn")

    def start(store, kind, **config):
        if kind == "gevent":
            installed(kind)
        lines = "".join(f"{name} = {value!r}\n" for name, value in config.items())
        (tmp_path / "served.py").write_text(PLAIN_ASGI if kind == "asgi" else WSGI)
        (tmp_path / "config.py").write_text(
            f"{CONFIG}worker_class = {kind!r}\nthreads = {1 + (kind == 'gthread')}\n{lines}"
        )
        started.append(Server(tmp_path, store, "gunicorn", "-c", "config.py", "served:application"))
        return started[-1]

    return start


@pytest.fixture
def uvicorn(started, tmp_path):
    """Start uvicorn with an ASGI module: `uvicorn(store, ASGI)`."""
    installed("uvicorn")

    def start(store, module):
        (tmp_path / "served.py").write_text(module)
        started.append(Server(tmp_path, store, "uvicorn", "--port", "0", "served:application"))
        return started[-1]

    return start


@pytest.fixture(scope="module")
def redis(redis_server, tmp_path_factory):
    return redis_store(redis_server.url, tmp_path_factory.mktemp("servers"))


@pytest.fixture(scope="module")
def redis_looker(redis):
    looker = Worker(env=redis.env, cwd=Path(redis.env["JOBS_DIR"]))
    yield looker
    looker.close()


@pytest.fixture
def looker(redis_looker):
    """Another process, which looks and wants."""
    for name in ("page", "left", "short"):
        redis_looker.ask("start_afresh", name)
    return redis_looker


def assert_free(looker, *names):
    for name in names:
        assert looker.ask("lease", name) is None
        assert looker.ask("acquire", name, ttl=60, follow_dead=False) is not None


def seen(looker, name):
    return wait_until(lambda: looker.ask("lease", name), 10)


def is_gone(pid):
    return not Path(f"/proc/{pid}").exists()


# gunicorn


def end_in_the_middle_of_a_request(server, looker):
    """One hold is left, one is in a view that looks whether it should go. SIGTERM; all is free when it has ended."""
    server.get("/leave/left/60")
    answer = server.begin_get("/until/drain")
    seen(looker, "page")
    assert looker.ask("lease", "left") is not None

    sent_at = server.send(signal.SIGTERM)

    assert answer() == "True True", "draining, and held to the end"
    done = server.done()
    assert done.at - sent_at < 2 + SOON
    assert_free(looker, "page", "left")
    return done


@pytest.mark.parametrize("kind", ["sync", "gthread", "asgi"])
def test_gunicorn_ended_by_sigterm_drains_answers_and_leaves_nothing_held(gunicorn, redis, looker, kind):
    assert end_in_the_middle_of_a_request(gunicorn(redis, kind), looker).code == 0


def test_gunicorn_ended_by_sigterm_leaves_nothing_held_on_sqlite(gunicorn, started, tmp_path):
    store = new_store(SimpleNamespace(param="sqlite"), tmp_path)
    looker = Worker(env=store.env, cwd=tmp_path)
    started.append(looker)

    assert end_in_the_middle_of_a_request(gunicorn(store, "sync"), looker).code == 0


@pytest.mark.parametrize("kind", ["sync", "gthread"])
def test_a_reload_frees_what_the_old_worker_held(gunicorn, redis, looker, kind):
    server = gunicorn(redis, kind)
    old = int(server.get("/leave/left/60"))
    answer = server.begin_get("/until/drain")
    seen(looker, "page")

    server.send(signal.SIGHUP)

    assert answer() == "True True"
    wait_until(lambda: looker.ask("lease", "left") is None, 1 + SOON)
    assert_free(looker, "page")
    assert int(server.get("/leave/left/60")) != old


@pytest.mark.parametrize("how", ["term", "reload", "kill"])
def test_a_worker_of_greenlets_answers_and_leaves_nothing_held(gunicorn, redis, looker, how):
    """Threads are greenlets there, the one that renews among them."""
    server = gunicorn(redis, "gevent", worker_connections=50)
    old = int(server.get("/leave/left/60"))
    answer = server.begin_get("/until/drain")
    fence = seen(looker, "page")["fence"]

    if how == "kill":
        os.kill(old, signal.SIGKILL)
        assert wait_until(lambda: looker.ask("acquire", "page", ttl=60), SOON) > fence, "found dead on this machine"
        assert looker.ask("acquire", "left", ttl=60) is not None
        answer()
        return
    server.send(signal.SIGTERM if how == "term" else signal.SIGHUP)

    assert answer() == "True True", "draining, and held to the end"
    wait_until(lambda: looker.ask("lease", "left") is None, 10)
    assert_free(looker, "page", "left")
    if how == "term":
        assert server.done().code == 0
    else:
        assert int(server.get("/leave/left/60")) != old


def test_a_worker_of_greenlets_renews_while_its_requests_wait(gunicorn, redis, looker, tmp_path):
    server = gunicorn(redis.with_claims(TTL=4), "gevent")
    answer = server.begin_get("/hold/5")

    assert seen(looker, "page")
    assert answer() == "True", "held for longer than its TTL"


def test_nothing_is_released_under_a_thread_that_outlives_the_graceful_timeout(gunicorn, redis, looker, tmp_path):
    server = gunicorn(redis, "gthread", graceful_timeout=1)
    old = int(server.get("/leave/left/60"))
    answer = server.begin_get("/until/go")
    seen(looker, "page")

    server.send(signal.SIGHUP)
    wait_until((tmp_path / "exited").exists, 10)

    assert looker.ask("acquire", "page", ttl=60, timeout=0.5) is None, "it still works"
    (tmp_path / "go").touch()
    wait_until(lambda: looker.ask("lease", "left") is None, SOON)
    assert_free(looker, "page", "left")
    wait_until(lambda: is_gone(old), SOON)
    answer()


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGINT])
def test_gunicorn_told_to_quit_at_once_leaves_nothing_held(gunicorn, redis, looker, number):
    server = gunicorn(redis, "sync")
    server.get("/leave/left/60")
    answer = server.begin_get("/until/go")
    seen(looker, "page")

    server.send(number)

    assert server.done().code == 0
    assert_free(looker, "page", "left")
    answer()


def test_a_worker_over_its_timeout_leaves_nothing_held(gunicorn, redis, looker):
    """gunicorn sends SIGABRT first, and gives it a second."""
    server = gunicorn(redis, "sync", timeout=3)
    old = int(server.get("/leave/left/60"))
    answer = server.begin_get("/until/go")
    seen(looker, "page")

    wait_until(lambda: is_gone(old), 10)

    assert_free(looker, "page", "left")
    answer()


def seconds_between(earlier, later):
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_a_killed_worker_is_found_dead_at_once_or_its_claim_ends_with_the_ttl(gunicorn, redis, looker):
    server = gunicorn(redis, "sync")
    server.get("/leave/short/2")
    old = int(server.get("/leave/left/60"))
    assert looker.ask("acquire", "left", ttl=60) is None

    os.kill(old, signal.SIGKILL)
    lease = looker.ask("lease", "short")

    assert wait_until(lambda: looker.ask("acquire", "left", ttl=60), SOON) > 0
    assert looker.ask("acquire", "short", ttl=60, timeout=10, follow_dead=False) is not None
    waited = seconds_between(lease["expires_at"], looker.ask("lease", "short")["acquired_at"])
    assert 0 <= waited < 1


# uvicorn


def test_uvicorn_with_our_lines_drains_answers_and_leaves_nothing_held(uvicorn, redis, looker):
    done = end_in_the_middle_of_a_request(uvicorn(redis, ASGI), looker)

    assert done.code == -signal.SIGTERM


def test_uvicorn_alone_frees_what_views_hold_and_dies_by_the_signal_with_what_was_left(
    uvicorn, redis, looker, tmp_path
):
    """It ends by raising the signal again, so that nothing of Python's own exit runs."""
    server = uvicorn(redis, PLAIN_ASGI)
    server.get("/leave/left/60")
    answer = server.begin_get("/until/go")
    seen(looker, "page")

    server.send(signal.SIGTERM)
    wait_until(lambda: "Shutting down" in "".join(server.errors), 10)
    (tmp_path / "go").touch()

    assert answer() == "False True"
    assert server.done().code == -signal.SIGTERM
    assert_free(looker, "page")
    assert looker.ask("acquire", "left", ttl=60, follow_dead=False) is None
    assert looker.ask("acquire", "left", ttl=60) is not None, "its holder is found dead"


def test_a_killed_uvicorn_is_found_dead_at_once(uvicorn, redis, looker):
    server = uvicorn(redis, ASGI)
    server.get("/leave/left/60")

    server.send(signal.SIGKILL)

    assert server.done().code == -signal.SIGKILL
    assert looker.ask("acquire", "left", ttl=60) is not None


# uWSGI

STOPPED = """
import uwsgi
from django_claims import release_all, start_draining


def stopped():
    start_draining("uWSGI")
    release_all("uWSGI")


uwsgi.atexit = stopped
"""


@pytest.fixture
def uwsgi(started, tmp_path):
    """Start uWSGI with one worker: `uwsgi(store, "--threads", "2")`."""
    program = shutil.which("uwsgi", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        missing("uwsgi is not installed")

    def start(store, *options):
        (tmp_path / "served.py").write_text(WSGI + STOPPED)
        (tmp_path / "launch_uwsgi.py").write_text(f"import os, sys\nos.execv({program!r}, ['uwsgi', *sys.argv[1:]])\n")
        arguments = ["--http-socket", f"127.0.0.1:{free_port()}", "--module", "served", "--master", "--need-app"]
        arguments += ["--pythonpath", str(tmp_path), "--pythonpath", str(PROJECT), "--pythonpath", str(TESTS.parent)]
        arguments += ["--virtualenv", sys.prefix, "--die-on-term", "--lazy-apps", *options]
        started.append(UwsgiServer(tmp_path, store, *arguments))
        return started[-1]

    return start


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class UwsgiServer(Server):
    launcher = "launch_uwsgi.py"

    def _find_port(self):
        assert self.process.poll() is None, "".join(self.errors)
        ready = "WSGI app 0" in "".join(self.errors)
        return ready and int(re.search(r"127\.0\.0\.1:(\d+)", "".join(self.errors))[1])


@pytest.mark.parametrize("options", [[], ["--enable-threads"], ["--threads", "2"]], ids=" ".join)
def test_uwsgi_with_threads_renews_and_leaves_nothing_held(uwsgi, redis, looker, options):
    server = uwsgi(redis.with_claims(TTL=4), *options)
    server.get("/leave/left/4")
    assert server.get("/hold/5") == "True"
    assert looker.ask("lease", "left") is not None, "renewed, though nobody was served for longer than its TTL"

    server.send(signal.SIGTERM)

    assert server.done().code == 0
    assert_free(looker, "page", "left")


def test_a_reload_of_uwsgi_lets_the_request_under_way_end_and_leaves_nothing_held(uwsgi, redis, looker):
    server = uwsgi(redis, "--threads", "2")
    old = int(server.get("/leave/left/60"))
    answer = server.begin_get("/hold/2")
    seen(looker, "page")

    server.send(signal.SIGHUP)

    assert answer() == "True"
    wait_until(lambda: looker.ask("lease", "left") is None, 10)
    assert_free(looker, "page", "left")
    assert int(server.get("/leave/left/60")) != old


def test_uwsgi_ended_by_sigterm_cuts_the_request_under_way_whose_claim_is_free_on_this_machine(uwsgi, redis, looker):
    """It ends a busy worker without a word to Python."""
    server = uwsgi(redis, "--threads", "2")
    server.get("/leave/left/60")
    answer = server.begin_get("/hold/20")
    fence = seen(looker, "page")["fence"]

    server.send(signal.SIGTERM)

    assert "closed" in answer()
    assert server.done().code == 0
    assert looker.ask("lease", "page")["fence"] == fence, "as another machine sees it, until its TTL is over"
    assert wait_until(lambda: looker.ask("acquire", "page", ttl=60), SOON) > fence
    assert wait_until(lambda: looker.ask("acquire", "left", ttl=60), SOON)


def test_a_killed_uwsgi_worker_is_found_dead_at_once(uwsgi, redis, looker):
    server = uwsgi(redis)
    old = int(server.get("/leave/left/60"))

    os.kill(old, signal.SIGKILL)

    assert wait_until(lambda: looker.ask("acquire", "left", ttl=60), SOON) is not None


def test_without_threads_an_acquire_is_refused_with_the_name_of_the_option(held, monkeypatch):
    """As in versions of uWSGI that run none unless asked to; those of today always do, so this one is a stand-in."""
    held.release()
    monkeypatch.setattr(heartbeats, "IDLE_SECONDS", 0.05)
    wait_for_no_threads()  # one that runs needs no new thread
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(has_threads=0))

    with pytest.raises(ClaimError, match=r"Claim 'page' was not taken: .*uWSGI .*set enable-threads = true"):
        claim("page").acquire()

    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(has_threads=1))
    with claim("page") as hold:
        assert hold.held


# Programs under no server: the rows of docs/shutdown.md that no other test produces.

PROGRAM = """
import os, sys, time
import django

django.setup()

from django_claims import claim, shutdown

if sys.argv[1] == "install":
    shutdown.install()
hold = claim("left", ttl=60).acquire()
print("ready", flush=True)
match sys.argv[1]:
    case "exit":
        sys.exit(3)
    case "raise":
        raise ValueError("its own")
    case "_exit":
        os._exit(4)
    case "wait" | "install":
        time.sleep(60)
"""

INTERRUPTED = (130, -signal.SIGINT)


@pytest.mark.parametrize(
    ("how", "number", "codes", "is_released"),
    [
        ("return", None, (0,), True),
        ("exit", None, (3,), True),
        ("raise", None, (1,), True),
        ("_exit", None, (4,), False),
        ("wait", signal.SIGINT, INTERRUPTED, True),
        ("wait", signal.SIGTERM, (-signal.SIGTERM,), False),
        ("wait", signal.SIGHUP, (-signal.SIGHUP,), False),
        ("wait", signal.SIGKILL, (-signal.SIGKILL,), False),
        ("install", signal.SIGTERM, (143,), True),
        ("install", signal.SIGHUP, (129,), True),
    ],
)
def test_how_a_program_of_ones_own_ends(started, redis, looker, tmp_path, how, number, codes, is_released):
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {**redis.env, "PYTHONPATH": os.pathsep.join(HOME)}
    started.append(Child(str(tmp_path / "program.py"), how, env=env, cwd=tmp_path))
    started[-1].says("ready")

    if number is not None:
        started[-1].send(number)
    done = started[-1].done()

    assert done.code in codes
    assert (looker.ask("lease", "left") is None) is is_released
    assert (looker.ask("acquire", "left", ttl=60, follow_dead=False) is not None) is is_released
    if not is_released:
        assert looker.ask("acquire", "left", ttl=60) is not None, "this machine finds its holder dead"


COMMAND = "command:night.report"


@pytest.fixture
def report(started, redis, looker, tmp_path):
    """Start the guarded command of the test project: `report("wait")`."""
    looker.ask("start_afresh", COMMAND)

    def start(body, **how):
        started.append(Child("manage.py", "report", "--do", body, env=redis.env, cwd=tmp_path, **how))
        started[-1].says("ready")
        return started[-1]

    return start


def test_a_shell_that_execs_the_command_hands_its_signals_to_it(report, looker):
    command = report("wait", prefix=["sh", "-c", 'true; exec "$@"', "sh"])

    command.send(signal.SIGTERM)

    assert command.done().code == 143
    assert_free(looker, COMMAND)


def test_a_shell_that_runs_the_command_dies_alone_and_the_command_goes_on_holding(report, looker):
    shell = report("wait", prefix=["sh", "-c", '"$@"; true', "sh"])
    inner = children_of(shell.pid)
    try:
        shell.send(signal.SIGTERM)

        assert shell.process.wait(10) == -signal.SIGTERM
        assert looker.ask("acquire", COMMAND, ttl=60) is None, "its holder lives"
    finally:
        for pid in inner:
            end(pid)
    assert len(inner) == 1


def ticks_of_main_thread(pid):
    """Return its processor time, in hundredths of a second."""
    return int(Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def test_a_main_thread_in_c_code_does_not_hear_sigterm_and_is_left_to_sigkill(report, looker):
    command = report("stuck")
    ready_at = ticks_of_main_thread(command.pid)
    wait_until(lambda: ticks_of_main_thread(command.pid) > ready_at + 20, 10)  # by now it is in C code

    command.send(signal.SIGTERM)

    assert stays(lambda: command.process.poll() is None, 1)
    assert looker.ask("acquire", COMMAND, ttl=60) is None
    command.send(signal.SIGKILL)
    assert command.done().code == -signal.SIGKILL
    assert looker.ask("acquire", COMMAND, ttl=60) is not None


# The hooks by themselves, which need no gunicorn.


@pytest.fixture
def held(settings):
    settings.CLAIMS = claims_settings()
    hold = claim("job").acquire()
    yield hold
    hold.release()


def worker_of(pid, **about):
    return SimpleNamespace(pid=pid, **about)


def test_a_worker_that_exits_drains_and_releases(held):
    hooks.worker_exit(None, worker_of(os.getpid()))

    assert draining()
    assert claim("job").available()


def test_the_master_releases_nothing_for_a_worker_that_is_gone(held):
    hooks.worker_exit(None, worker_of(os.getpid() + 1))

    assert not draining()
    assert held.held


def test_a_worker_whose_threads_still_serve_releases_nothing_yet(held):
    hooks.worker_exit(None, worker_of(os.getpid(), nr_conns=1))

    assert draining()
    assert held.held


def test_a_failure_is_logged_and_not_raised(held, monkeypatch, caplog):
    def fail(reason):
        raise RuntimeError("broken")

    monkeypatch.setattr(shutdown, "release_all", fail)

    hooks.worker_exit(None, worker_of(os.getpid()))

    assert "Holds could not be released" in caplog.text


@pytest.mark.parametrize("hook", [hooks.worker_int, hooks.worker_abort])
def test_a_worker_that_is_told_to_go_at_once_drains_and_releases_nothing(held, hook):
    hook(worker_of(os.getpid()))

    assert draining()
    assert held.held


def test_sigterm_drains_and_goes_on_to_gunicorns_own_handler():
    called = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: called.append((number, draining())))
    try:
        hooks.post_worker_init(worker_of(os.getpid()))
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert called == [(signal.SIGTERM, True)]


def test_where_nothing_answers_sigterm_nothing_is_set():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        hooks.post_worker_init(worker_of(os.getpid()))

        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


# docs/shutdown.md

PAGE = (TESTS.parent / "docs" / "shutdown.md").read_text()


def test_the_page_shows_the_lines_that_are_tested():
    assert f"```python{ASGI}```" in PAGE
    assert f"```python{STOPPED}```" in PAGE


def test_the_tests_that_the_page_names_exist():
    named = re.findall(r"`(\S+\.py)::(test_\w+)`", PAGE)

    assert len(named) > 30
    assert [f"{file}::{name}" for file, name in named if f"def {name}(" not in (TESTS / file).read_text()] == []

"""Django starts and its own commands run without the store: nothing is asked, taken or made."""

import socket

import pytest

from tests.processes.conftest import redis_store

COMMANDS = [
    ["migrate", "--verbosity", "0"],
    ["makemigrations", "--check", "--dry-run"],
    ["check"],
    ["shell", "--verbosity", "0", "-c", "import django_claims"],
    ["collectstatic", "--no-input", "--verbosity", "0"],
    ["report", "--help"],
]


@pytest.fixture
def listener():
    """A port that connections can be made to, where nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def run_all(manage, store):
    started = [(arguments, manage(store, *arguments)) for arguments in COMMANDS]
    for arguments, child in started:
        done = child.done()
        assert done.code == 0, (arguments, done)
        assert "Traceback" not in done.err


def test_with_the_store_down_commands_that_need_no_claim_succeed(manage, tmp_path, closed_port):
    run_all(manage, redis_store(f"redis://127.0.0.1:{closed_port}/0", tmp_path))


def test_commands_that_need_no_claim_do_not_contact_the_store(manage, tmp_path, listener):
    run_all(manage, redis_store(f"redis://127.0.0.1:{listener.getsockname()[1]}/0", tmp_path))

    with pytest.raises(BlockingIOError):
        listener.accept()  # a connection that was made would be waiting here


def test_a_claim_does_contact_the_store(manage, tmp_path, listener):
    """Or the test above would show nothing."""
    store = redis_store(f"redis://127.0.0.1:{listener.getsockname()[1]}/0", tmp_path).with_claims(STORE_TIMEOUT=0.2)

    assert manage(store, "report").done().code == 69

    listener.accept()[0].close()


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_commands_that_need_no_claim_make_no_file_for_leases(manage, store, tmp_path):
    run_all(manage, store)
    assert not (tmp_path / "jobs.sqlite3-claims").exists()

    assert manage(store, "report").done().code == 0
    assert (tmp_path / "jobs.sqlite3-claims").exists()


def test_a_program_that_uses_no_claim_starts_no_thread(manage, redis):
    code = "import threading, django_claims; print([t.name for t in threading.enumerate()])"

    done = manage(redis, "shell", "--verbosity", "0", "-c", code).done()

    assert done.out == "['MainThread']"

"""FileBackend: the contract, and what is special to it."""

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest
from django.test import override_settings

from django_claims import claim, force_release, request_stop
from django_claims.backends import file_cleaning, file_directory, file_places, file_state, file_visit
from django_claims.backends.base import AcquireRequest, Refusal, Released, ReleaseRequest, Renewal, RenewRequest
from django_claims.backends.file import FileBackend
from django_claims.backends.file_records import SLOT, Record, write_slot
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.holders import this_holder
from django_claims.names import digest
from django_claims.test import BackendContract
from django_claims.test.waiting import wait_until
from tests.conftest import missing
from tests.helpers import run_in_thread

FILES = "django_claims.backends.file.FileBackend"


def settings_of(directory, **changes):
    options = {"directory": str(directory), **changes.pop("options", {})}
    return AliasSettings(**{"alias": "default", "backend": FILES, "options": options, **changes})


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory for claims under tmp_path, which is a temporary one and would be refused."""
    monkeypatch.setattr(file_places, "temporary_places", list)
    return tmp_path / "claims"


@pytest.fixture
def backend(directory):
    backend = FileBackend(settings_of(directory))
    yield backend
    backend.close()


class TestFileBackend(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, directory):
        self.backend = FileBackend(settings_of(directory))
        yield
        self.backend.close()


def request(name="job", token="t1", ttl_ms=60_000, over_fence=None):
    return AcquireRequest(name, token, ttl_ms, 20_000, this_holder(), over_fence)


def is_granted(backend, name="job", token="t1"):
    return not isinstance(backend.acquire([request(name, token)]), Refusal)


def file_of(directory, name="job"):
    return directory / "leases" / digest(name)


def slot_of(directory, number, name="job"):
    return file_of(directory, name).read_bytes()[number * SLOT :].split(b"\0")[0]


# -- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", "claims", "./claims", b"/srv/claims", 5, ["/srv/claims"], "/srv/\0x"])
def test_a_directory_should_be_an_absolute_path(value):
    with pytest.raises(InvalidClaimsSetting, match=r"\['directory'\] should be an absolute path") as caught:
        FileBackend(AliasSettings(alias="default", backend=FILES, options={"directory": value}))
    assert repr(value) in str(caught.value)


def test_the_directory_is_required_and_other_options_are_not_known():
    with pytest.raises(InvalidClaimsSetting, match=r"should be an absolute path .* not None"):
        FileBackend(AliasSettings(alias="default", backend=FILES, options={}))
    with pytest.raises(InvalidClaimsSetting, match="did you mean 'directory'"):
        FileBackend(AliasSettings(alias="default", backend=FILES, options={"directroy": "/srv/claims"}))


@pytest.mark.parametrize(
    "path",
    ["/tmp", "/tmp/claims", "/var/tmp/a/b", "/dev/shm/claims", "/srv/../tmp/claims", tempfile.gettempdir() + "/x"],
)
def test_temporary_directories_are_refused(path):
    with pytest.raises(InvalidClaimsSetting, match="temporary files") as caught:
        FileBackend(settings_of(path))
    assert repr(path) in str(caught.value)
    assert "/var/lib/myproject/claims" in str(caught.value)


def test_a_link_to_a_temporary_directory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "temporary")
    monkeypatch.setattr(file_places, "temporary_places", lambda: [str(tmp_path / "temporary")])

    FileBackend(settings_of(tmp_path / "temporary-not"))
    with pytest.raises(InvalidClaimsSetting, match="temporary files"):
        FileBackend(settings_of(tmp_path / "link" / "claims"))


@pytest.mark.parametrize(
    "path",
    [
        "/srv/shop/releases/20260102030405/claims",
        "/srv/shop/releases/4f5a9d1c/var/claims",
        "/srv/venv/lib/python3.11/site-packages/shop/claims",
    ],
)
def test_directories_of_one_release_are_refused(path):
    with pytest.raises(InvalidClaimsSetting, match=r"release|package") as caught:
        FileBackend(settings_of(path))
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize("path", ["/srv/shop/releases/claims", "/srv/shop/shared/claims", "/var/lib/shop/claims"])
def test_other_directories_are_not_judged(path):
    assert FileBackend(settings_of(path)).describe() == f"files in {path}"


def test_the_directory_of_the_current_release_is_refused_by_where_it_leads(directory, tmp_path):
    release = tmp_path / "releases" / "20260102030405"
    release.mkdir(parents=True)
    (tmp_path / "current").symlink_to(release)

    with pytest.raises(InvalidClaimsSetting, match="is one release"):
        FileBackend(settings_of(tmp_path / "current" / "claims"))


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "ceph", "fuse.sshfs", "fuse.glusterfs", "virtiofs"])
def test_network_and_fuse_file_systems_are_refused_by_mount_point(tmp_path, monkeypatch, kind):
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"40 22 0:50 / /srv/far\\040away rw,relatime shared:5 - {kind} server:/x rw\n"
        "41 40 0:51 / /srv/far\\040away/local rw - xfs /dev/vdb rw\n"
    )
    monkeypatch.setattr(file_places, "MOUNTS", table)

    with pytest.raises(InvalidClaimsSetting, match=rf"'/srv/far away', a network or FUSE file system \({kind}\)"):
        FileBackend(settings_of("/srv/far away/claims"))
    FileBackend(settings_of("/srv/far away/local/claims"))
    FileBackend(settings_of("/srv/far away 2/claims"))


def test_without_a_mount_table_nobody_can_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(file_places, "MOUNTS", tmp_path / "none")

    FileBackend(settings_of("/srv/claims"))


@pytest.mark.parametrize("mode", ["0700", True, 700, 0o600, 0o777, 0o702, -1, 0o17777, 7.0])
def test_a_mode_that_cannot_be_is_refused(mode):
    with pytest.raises(InvalidClaimsSetting, match=r"\['mode'\] should be permissions"):
        FileBackend(settings_of("/srv/claims", options={"mode": mode}))


def test_without_fcntl_it_says_what_to_use_instead(monkeypatch):
    monkeypatch.setattr(file_directory, "fcntl", None)

    with pytest.raises(InvalidClaimsSetting, match=r"needs the locks of a Unix system .* 'django_claims.backends.data"):
        FileBackend(settings_of("/srv/claims"))


def test_it_is_imported_where_there_is_no_fcntl():
    code = (
        "import sys, os\nsys.modules['fcntl'] = None\n"
        "for name in ('O_NOFOLLOW', 'O_CLOEXEC', 'O_DIRECTORY', 'O_NONBLOCK', 'geteuid'):\n"
        "    delattr(os, name)\n"
        "from django.conf import settings\nsettings.configure()\n"
        "import django_claims.backends.file\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- the directory ---------------------------------------------------------------------------


def test_nothing_is_made_before_the_first_use(directory):
    backend = FileBackend(settings_of(directory))

    assert backend.lease("job") is None
    assert backend.poll() == []
    assert not directory.exists()


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o770])
def test_the_directory_is_made_with_its_mode_whatever_the_umask(directory, mode):
    backend = FileBackend(settings_of(directory, options={"mode": mode}))
    before = os.umask(0o077)
    try:
        assert is_granted(backend)
    finally:
        os.umask(before)

    assert {stat.S_IMODE(path.stat().st_mode) for path in (directory, directory / "leases")} == {mode}
    assert stat.S_IMODE(file_of(directory).stat().st_mode) == mode & 0o666
    backend.close()


def test_only_the_directory_itself_is_made(tmp_path, directory):
    backend = FileBackend(settings_of(tmp_path / "not-mounted" / "claims"))

    for verb in (lambda: backend.acquire([request()]), lambda: backend.lease("job"), backend.poll):
        with pytest.raises(BackendUnavailable, match="not-mounted/claims") as caught:
            verb()
        assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert not (tmp_path / "not-mounted").exists()


def test_a_directory_that_is_removed_while_held_is_learned_of(backend, directory):
    (first,) = backend.acquire([request()])
    shutil.rmtree(directory)

    assert backend.lease("job") is None
    (answer,) = backend.renew([RenewRequest("job", "t1", first.fence, 60_000)])
    assert answer.outcome is Renewal.GONE
    (second,) = backend.acquire([request(token="t2")])
    assert second.fence > first.fence


def test_a_directory_that_is_put_aside_is_left(backend, directory):
    (first,) = backend.acquire([request()])
    directory.rename(directory.with_name("aside"))

    (second,) = backend.acquire([request(token="t2")])

    assert second.fence > first.fence
    assert not backend.held("job", "t1")
    assert backend.release([ReleaseRequest("job", "t1")]) == [Released.NOT_OWNER]


def test_a_part_of_the_directory_that_is_removed_is_made_again(backend, directory):
    assert is_granted(backend)
    shutil.rmtree(directory / "leases")

    with pytest.raises(BackendUnavailable, match=str(directory)):
        backend.acquire([request(token="t2")])

    assert is_granted(backend, token="t3")


@pytest.mark.parametrize("what", ["", "lock", "leases", "processes"])
def test_links_in_its_place_are_not_followed(directory, tmp_path, what):
    other = FileBackend(settings_of(tmp_path / "theirs"))
    assert is_granted(other)
    backend = FileBackend(settings_of(directory))
    if what:
        directory.mkdir(mode=0o700)
    (directory / what).symlink_to(tmp_path / "theirs" / what)

    with pytest.raises(BackendUnavailable, match=str(directory)) as caught:
        backend.acquire([request("other")])

    assert isinstance(caught.value.__cause__, OSError)
    assert other.lease("other") is None


@pytest.mark.parametrize("kind", ["symlink", "dangling", "hard link", "fifo", "directory"])
def test_what_is_no_file_of_ours_is_not_written_to(backend, directory, tmp_path, kind):
    assert is_granted(backend, "other")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file = file_of(directory)
    if kind == "symlink":
        file.symlink_to(victim)
    elif kind == "dangling":
        file.symlink_to(tmp_path / "nothing")
    elif kind == "hard link":
        file.hardlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.mkdir()

    for verb in (lambda: backend.acquire([request()]), lambda: backend.lease("job")):
        with pytest.raises(BackendUnavailable, match=str(directory)):
            verb()

    assert victim.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()
    assert backend.held("other", "t1")


def test_a_directory_that_everybody_may_write_to_is_not_used(directory):
    directory.mkdir()
    directory.chmod(0o1777)

    with pytest.raises(BackendUnavailable, match="everybody may write there"):
        FileBackend(settings_of(directory)).acquire([request()])


# -- records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"x", b"\0\0x", b"1 2 3\n", b"[]", "é☃".encode() * 5000, b"1" * SLOT * 2])
def test_garbage_is_unreadable_and_can_be_force_released(backend, directory, garbage):
    assert is_granted(backend, "other")
    file_of(directory).write_bytes(garbage)

    refusal = backend.acquire([request(over_fence=0)])
    lease = backend.lease("job")

    assert (refusal.lease.state, refusal.lease.fence, refusal.lease.holder) == ("unreadable", 0, None)
    assert (lease.state, lease.fence) == ("unreadable", 0)
    assert backend.release([ReleaseRequest("job", "t1")]) == [Released.NOT_OWNER]
    assert not backend.force_release("job", 1)
    assert backend.force_release("job", 0)
    assert is_granted(backend)


@pytest.mark.parametrize("content", [b"", bytes(100), bytes(3 * SLOT)])
def test_a_file_that_was_made_and_not_yet_written_is_free(backend, directory, content):
    assert is_granted(backend, "other")
    file_of(directory).write_bytes(content)

    assert backend.lease("job") is None
    assert is_granted(backend)


def test_a_record_of_a_newer_format_is_unreadable_and_not_taken_over_before_its_time(backend, directory):
    (granted,) = backend.acquire([request(ttl_ms=400)])
    file = file_of(directory)
    file.write_bytes(b"2" + file.read_bytes()[1:])

    refused = backend.acquire([request(token="t2", over_fence=granted.fence)])
    listed = backend.leases(match="", page=1, per_page=10)

    assert refused.lease.state == "unreadable"
    assert [(lease.name, lease.state) for lease in listed] == [("job", "unreadable")]
    assert wait_until(lambda: is_granted(backend, token="t3"), 5)


def test_a_record_with_a_holder_that_cannot_be_read_is_unreadable(backend, directory):
    run = Record("job", "", "t1", 5, 1, 1, 60_000, 20_000, "h", "{", "")
    assert is_granted(backend, "other")
    run = run._replace(process=backend._directory._process[0], acquired_us=file_state.now())
    with file_of(directory).open("wb") as file:
        write_slot(file.fileno(), None, file_state.BOOT, run.acquired_us + 60_000_000, run.packed())

    assert (backend.lease("job").state, backend.lease("job").fence) == ("unreadable", 0)
    assert isinstance(backend.acquire([request(token="t2", over_fence=5)]), Refusal)
    assert backend.force_release("job", 0)
    assert is_granted(backend)


def test_a_record_of_another_boot_is_over_whatever_its_time(backend, monkeypatch):
    (old,) = backend.acquire([request(ttl_ms=10**9)])
    backend.set_flag("kept", keep=True, fence=None, reason="why", by="ann", ttl_ms=60_000)
    (flag,) = backend.flags()
    for module in (file_state, file_visit):
        monkeypatch.setattr(module, "BOOT", "another")
    monkeypatch.setattr(file_visit, "now", lambda: file_state.now() - 10**12)  # the clock began anew
    monkeypatch.setattr(file_state, "epoch", lambda: old.acquired_us + 10**12)

    assert backend.lease("job") is None
    (kept,) = backend.flags()  # outlives the boot, with its dates
    (new,) = backend.acquire([request(token="t2")])

    assert kept.name == "kept" and kept.reason == "why"
    assert new.fence > old.fence
    assert flag.requested_at is not None and kept.requested_at is not None


@pytest.mark.parametrize("cut", [10, 60, 120, 300])
def test_a_torn_write_leaves_what_was_there_before(backend, directory, cut):
    (granted,) = backend.acquire([request()])
    before = slot_of(directory, 0)
    backend.renew([RenewRequest("job", "t1", granted.fence, 120_000)])
    with file_of(directory).open("r+b") as file:  # the second write did not get that far
        file.truncate(SLOT + min(cut, len(slot_of(directory, 1)) - 1))

    lease = backend.lease("job")

    assert slot_of(directory, 0) == before
    assert (lease.state, lease.fence, lease.ttl) == ("held", granted.fence, 60.0)
    assert backend.renew([RenewRequest("job", "t1", granted.fence, 60_000)])[0].outcome is Renewal.RENEWED


def test_records_longer_than_one_read_come_back_whole(backend):
    name, holder = "\N{PARTY POPPER}" * 500, replace(this_holder(), label="\N{PARTY POPPER}" * 200, node="é" * 200)

    backend.acquire([AcquireRequest(name, "t1", 60_000, 20_000, holder)])

    lease = backend.lease(name)
    assert (lease.name, lease.holder.label, lease.holder.node) == (name, holder.label, holder.node)
    assert backend.leases(match="", page=1, per_page=10).leases[0].name == name


def test_a_record_beyond_all_measure_is_unavailable_and_not_written(backend):
    holder = replace(this_holder(), label="x" * SLOT)

    with pytest.raises(BackendUnavailable, match=f"at most {SLOT} bytes"):
        backend.acquire([AcquireRequest("job", "t1", 60_000, 20_000, holder)])

    assert backend.lease("job") is None
    assert is_granted(backend)


def test_the_file_of_another_name_is_unreadable(backend, directory):
    assert is_granted(backend, "other")
    shutil.copy(file_of(directory, "other"), file_of(directory))

    assert backend.lease("job").state == "unreadable"
    assert [lease.name for lease in backend.leases(match="", page=1, per_page=10)] == ["other"]


def test_no_token_is_shown(backend):
    assert "secret" not in repr(Record("job", "", "secret", 5, 1, 1, 1, 1, "h", "", ""))


# -- failures --------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path_factory, monkeypatch):
    """A disk of 64 kB of its own."""
    place = tmp_path_factory.mktemp("disk")
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place]).returncode:
        missing("no right to mount")
    monkeypatch.setattr(file_places, "temporary_places", list)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_unavailable_and_nothing_half_written_is_believed(full_disk):
    backend = FileBackend(settings_of(full_disk / "claims"))
    (granted,) = backend.acquire([request("held")])
    with pytest.raises(BackendUnavailable, match="No space left") as caught:
        for number in range(1000):
            backend.acquire([request(f"a-{number}"), request(f"b-{number}")])

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert backend.lease(f"a-{number}") is None
    assert backend.lease(f"b-{number}") is None
    assert backend.lease("held").fence == granted.fence
    (answer,) = backend.renew([RenewRequest("held", "t1", granted.fence, 120_000)])
    assert (answer.outcome, backend.lease("held").ttl) == (Renewal.RENEWED, 120.0)
    names = ["held", *(f"a-{n}" for n in range(number))]
    assert set(backend.release([ReleaseRequest(name, "t1") for name in names])) == {Released.RELEASED}
    assert is_granted(backend, "now there is room")
    shutil.rmtree(full_disk / "claims")
    assert is_granted(backend)
    backend.close()


def test_a_write_that_fails_in_the_middle_of_a_list_grants_none_of_it(backend, monkeypatch):
    assert is_granted(backend, "b", "before")
    backend.release([ReleaseRequest("b", "before")])
    real, writes = file_visit.write_slot, []

    def failing(fd, over, boot, expires_us, text):
        writes.append(text)
        if text.startswith(b"c\n"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, over, boot, expires_us, text)

    monkeypatch.setattr(file_visit, "write_slot", failing)
    with pytest.raises(BackendUnavailable, match="No space left"):
        backend.acquire([request(name) for name in "abc"])

    assert len(writes) == 4  # the fence, a, b and c
    assert [backend.lease(name) for name in "abc"] == [None] * 3
    monkeypatch.undo()
    assert isinstance(backend.acquire([request(name, "t2") for name in "abc"]), list)


def test_a_file_size_limit_is_unavailable_and_changes_nothing(backend):
    (granted,) = backend.acquire([request()])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(BackendUnavailable, match="too large"):
            backend.renew([RenewRequest("job", "t1", granted.fence, 60_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert backend.renew([RenewRequest("job", "t1", granted.fence, 60_000)])[0].outcome is Renewal.RENEWED


def test_a_read_only_disk_is_unavailable(full_disk):
    backend = FileBackend(settings_of(full_disk / "claims"))
    assert is_granted(backend)
    backend.release([ReleaseRequest("job", "t1")])
    backend.close()
    subprocess.run(["mount", "-o", "remount,ro", full_disk], check=True)

    for verb in (lambda: backend.acquire([request()]), lambda: backend.lease("job"), backend.poll):
        with pytest.raises(BackendUnavailable, match="Read-only") as caught:
            verb()
        assert str(full_disk / "claims") in str(caught.value)

    subprocess.run(["mount", "-o", "remount,rw", full_disk], check=True)
    assert is_granted(backend)
    backend.close()


def test_stop_flags_that_cannot_be_read_are_not_no_flags(backend, directory):
    backend.set_flag("job", keep=True, fence=None, reason="", by="", ttl_ms=None)
    (directory / "news").write_text("{")
    fresh = FileBackend(backend.settings)
    fresh._directory.news = None

    for verb in (lambda: fresh.acquire([request()]), fresh.poll, lambda: fresh.flag("job")):
        with pytest.raises(BackendUnavailable, match="'news' in it, which has the stop flags, cannot be read"):
            verb()

    (directory / "news").unlink()
    assert is_granted(fresh)


def test_a_signal_handler_that_asks_in_the_middle_of_a_request_is_answered(backend):
    with backend._directory.locked(1), pytest.raises(BackendUnavailable, match="in the middle of another request"):
        backend.acquire([request()])

    assert is_granted(backend)


# -- fences, news, cleaning ------------------------------------------------------------------


class JustLocked:
    """A lock after which a signal handler raises, as it may between any two steps."""

    def __init__(self, lock):
        self.real = lock

    def acquire(self, **how):
        assert self.real.acquire(**how)
        raise KeyboardInterrupt

    def release(self):
        self.real.release()


def test_an_interrupt_that_comes_as_the_lock_is_had_does_not_keep_it(backend, monkeypatch):
    assert is_granted(backend)
    lock = backend._directory._lock
    monkeypatch.setattr(backend._directory, "_lock", JustLocked(lock))
    with pytest.raises(KeyboardInterrupt):
        backend.release([ReleaseRequest("job", "t1")])
    monkeypatch.setattr(backend._directory, "_lock", lock)

    assert run_in_thread(lambda: backend.release([ReleaseRequest("job", "t1")])) == [Released.RELEASED]


def test_fences_grow_though_the_lock_file_lost_what_it_held(backend, directory):
    (first,) = backend.acquire([request("a")])
    (directory / "lock").write_bytes(b"garbage")

    (second,) = backend.acquire([request("b")])

    assert second.fence > first.fence


def test_fences_grow_though_the_time_of_day_was_set_back(backend, monkeypatch):
    (first,) = backend.acquire([request("a")])
    earlier = file_state.epoch() - 3600 * 10**6
    monkeypatch.setattr(file_visit, "epoch", lambda: earlier)

    (second,) = backend.acquire([request("b")])

    assert second.fence == first.fence + 1
    assert backend.lease("b").age < 5


def test_a_poll_without_news_reads_none(backend, monkeypatch):
    assert is_granted(backend)
    backend.set_flag("job", keep=False, fence=None, reason="", by="", ttl_ms=None)
    assert len(backend.poll()) == 1
    monkeypatch.setattr(file_visit, "read_news", None)

    assert len(backend.poll()) == 1


def test_news_that_a_dead_process_announced_and_never_wrote_hide_nothing(backend, monkeypatch):
    backend.set_flag("a", keep=True, fence=None, reason="", by="", ttl_ms=None)
    with monkeypatch.context() as patch:
        patch.setattr(file_visit, "write_news", lambda *args: os._exit(0))
        pid = os.fork()
        if not pid:
            backend.set_flag("b", keep=True, fence=None, reason="", by="", ttl_ms=None)
        os.waitpid(pid, 0)
    assert [flag.name for flag in backend.flags()] == ["a"]

    FileBackend(backend.settings).set_flag("c", keep=True, fence=None, reason="", by="", ttl_ms=None)

    assert [flag.name for flag in backend.flags()] == ["a", "c"]


def test_news_of_runs_that_are_over_are_left_out_when_others_are_written(backend, directory):
    for number in range(5):
        assert is_granted(backend, f"job-{number}")
        backend.set_flag(f"job-{number}", keep=False, fence=None, reason="", by="", ttl_ms=None)
        backend.release([ReleaseRequest(f"job-{number}", "t1")])

    backend.set_flag("kept", keep=True, fence=None, reason="", by="", ttl_ms=None)

    assert "job-" not in (directory / "news").read_text()


def test_files_of_released_names_are_removed_by_and_by(backend, directory, monkeypatch):
    monkeypatch.setattr(file_cleaning, "FREED", 40)
    monkeypatch.setattr(file_cleaning, "TIDIED", 7)
    for number in range(100):
        backend.acquire([request(f"job-{number}")])
        backend.release([ReleaseRequest(f"job-{number}", "t1")])

    left = {file_of(directory, f"job-{number}") for number in range(60, 100)}
    assert set((directory / "leases").iterdir()) == left

    assert is_granted(backend, "held")
    backend.close()

    assert list((directory / "leases").iterdir()) == [file_of(directory, "held")]
    assert backend.held("held", "t1")
    backend.release([ReleaseRequest("held", "t1")])
    backend.close()
    assert list((directory / "leases").iterdir()) == list((directory / "processes").iterdir()) == []


def test_files_of_names_that_have_ended_are_removed_a_bounded_number_at_a_time(backend, directory):
    backend.acquire([request(f"old-{number}", ttl_ms=1) for number in range(500)])
    assert is_granted(backend, "held")
    wait_until(lambda: not backend.leases(match="old-*", page=1, per_page=1).total)

    backend._directory.clean_at = 0.0
    backend.acquire([request("new")])
    left = len(list((directory / "leases").iterdir()))

    assert 502 - file_cleaning.SAMPLE <= left < 502 - file_cleaning.SAMPLE + 3
    assert backend.held("held", "t1") and backend.held("new", "t1")
    assert backend._directory.clean_at < clock() + 2  # there was much: soon again


def test_ten_thousand_leases_need_no_ten_thousand_descriptors_and_are_listed_by_pages(backend):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    names = [f"job-{number:05}" for number in range(10_000)]

    assert isinstance(backend.acquire([request(name) for name in names]), list)

    page = backend.leases(match="job-*", page=50, per_page=100)
    assert (page.total, page.complete) == (10_000, True)
    assert [lease.name for lease in page] == names[4900:5000]
    assert len(os.listdir("/proc/self/fd")) < before + 10  # noqa: PTH208
    assert {answer.outcome for answer in backend.renew([RenewRequest(name, "t1", 0, 60_000) for name in names])} == {
        Renewal.RENEWED
    }
    assert set(backend.release([ReleaseRequest(name, "t1") for name in names])) == {Released.RELEASED}


def test_names_of_emoji_are_claims_of_their_own(backend):
    names = ["\N{PARTY POPPER}" * 499 + chr(0x1F600 + number) for number in range(20)] + ["é" * 500, "a/../b", ".."]

    assert all(is_granted(backend, name) for name in names)
    assert not any(is_granted(backend, name, "t2") for name in names)
    assert sorted(lease.name for lease in backend.leases(match="", page=1, per_page=100)) == sorted(names)


def test_claims_work_over_it_from_end_to_end(directory):
    with override_settings(CLAIMS={"default": {"BACKEND": FILES, "OPTIONS": {"directory": str(directory)}}}):
        with claim("job") as hold:
            assert claim("job").acquire() is None
            assert request_stop("job", reason="enough").fence == hold.fence
            wait_until(lambda: hold.stop_requested)
            assert force_release("job", fence=hold.fence)
            wait_until(lambda: hold.lost)
            assert hold.loss_reason == "forced"
        assert claim("job").available()

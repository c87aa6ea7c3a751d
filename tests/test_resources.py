"""What a claim on a file, a row, a table or a database is called."""

import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest
from django.core.files.base import ContentFile
from django.db import connection, connections, models
from django.db.backends.sqlite3.base import DatabaseWrapper as SqliteWrapper

from django_claims import InvalidClaim, claim
from django_claims.names import MAX_LENGTH, checked
from django_claims.resources import resource

HOST = quote(socket.gethostname(), safe="")


class Shop(models.Model):
    class Meta:
        app_label = "resources_tests"

    def __str__(self):
        return "the same text for all"


class Market(Shop):
    class Meta:
        app_label = "resources_tests"
        proxy = True


class Stall(Market):
    class Meta:
        app_label = "resources_tests"
        proxy = True


class Branch(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    class Meta:
        app_label = "resources_tests"

    def __str__(self):
        return "the same text for all"


class Shelf(models.Model):
    pk = models.CompositePrimaryKey("row", "bay")
    row = models.IntegerField()
    bay = models.CharField(max_length=5)

    class Meta:
        app_label = "resources_tests"

    def __str__(self):
        return "the same text for all"


class Lease(models.Model):
    shop = models.OneToOneField(Shop, models.CASCADE, primary_key=True)

    class Meta:
        app_label = "resources_tests"

    def __str__(self):
        return "the same text for all"


class Base(models.Model):
    class Meta:
        app_label = "resources_tests"
        abstract = True

    def __str__(self):
        return "the same text for all"


# Paths.


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A directory without links in its name, as the working directory."""
    home = tmp_path.resolve() / "home"
    (home / "reports").mkdir(parents=True)
    (home / "reports" / "daily.csv").touch()
    (home / "link").symlink_to("reports")
    (home / "daily").symlink_to("link/daily.csv")
    (home / "absent").symlink_to(home / "reports" / "none.csv")
    (tmp_path / "elsewhere").symlink_to(home)
    monkeypatch.chdir(home)
    return home


@pytest.mark.parametrize(
    ("backends", "host"),
    [
        (["files"], ""), (["sqlite"], ""), (["files", "sqlite"], ""), (["files", "memory"], f":{HOST}"),
        (["memory"], f":{HOST}"), (["nonsense"], f":{HOST}"), ([], f":{HOST}"),
    ],
)  # fmt: skip
def test_the_host_goes_along_unless_every_store_is_of_one_machine(settings, tmp_path, backends, host):
    kinds = {
        "files": {"BACKEND": "django_claims.backends.file.FileBackend", "OPTIONS": {"directory": "/srv/claims"}},
        "sqlite": {"BACKEND": "django_claims.backends.database.DatabaseBackend", "OPTIONS": {"database": "a_file"}},
        "memory": {"BACKEND": "django_claims.backends.memory.MemoryBackend"},
        "nonsense": {"BACKEND": "no.such.Backend"},
    }
    connections.settings["a_file"] = {**connections.settings["default"], "NAME": str(tmp_path / "db.sqlite3")}
    try:
        names = ["default", *backends[1:]]
        settings.CLAIMS = {name: kinds[kind] for name, kind in zip(names, backends, strict=True)} if backends else None

        assert resource("/srv/x") == f"file{host}:'/srv/x'"
    finally:
        del connections.settings["a_file"]


def test_a_path_is_named_by_where_it_really_is_on_which_machine(home):
    assert resource("reports/daily.csv") == f"file:{HOST}:'{home}/reports/daily.csv'"
    assert resource("reports/daily.csv", shared=True) == f"file:'{home}/reports/daily.csv'"


@pytest.mark.parametrize(
    "spelling",
    [
        "reports/daily.csv", "./reports/daily.csv", "reports/../reports/daily.csv", "reports//daily.csv",
        "reports/daily.csv/", "link/daily.csv", "link/../reports/daily.csv", "daily", "link/../link/./daily.csv",
        "{home}/reports/daily.csv", "//{home}/reports/daily.csv", "/{home}/link//daily.csv", "/..{home}/daily",
        "{home}/../elsewhere/reports/daily.csv", "absent/../daily.csv",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_every_spelling_of_a_path_gives_one_name(home, spelling, kind):
    path = kind(spelling.format(home=home))

    assert resource(path) == resource(home / "reports" / "daily.csv")
    assert resource(path, shared=True) == resource(home / "reports" / "daily.csv", shared=True)


@pytest.mark.parametrize(
    "spelling", ["reports/none.csv", "link/none.csv", "absent", "none/../reports/none.csv", "reports/none.csv/"]
)
def test_a_file_that_is_not_there_yet_has_the_name_it_will_have(home, spelling):
    before = resource(spelling)
    (home / "reports" / "none.csv").touch()

    assert before == resource(spelling) == f"file:{HOST}:'{home}/reports/none.csv'"


def test_a_missing_directory_is_named_too(home):
    assert resource("link/a/b/../c.csv") == resource(home / "reports" / "a" / "c.csv")


def test_neither_the_working_directory_nor_that_for_temporary_files_matters(home, monkeypatch):
    name = resource(home / "reports")
    monkeypatch.chdir("/")
    monkeypatch.setenv("TMPDIR", str(home))
    monkeypatch.setenv("HOME", str(home))

    assert resource(home / "reports") == name
    assert resource("home") != name


def test_another_process_with_another_working_directory_gives_the_same_name(home):
    script = "import sys; from django_claims.resources import resource; print(resource(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, "../reports/daily.csv"],
        cwd=home / "link", capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert done.stdout.strip() == resource("daily")


def test_a_bare_word_is_a_path(home):
    assert resource("reports") == resource(home / "reports")


def test_upper_and_lower_case_are_two_files():
    assert resource("/srv/Report") != resource("/srv/report")


def test_two_machines_have_two_files_unless_they_share_them(monkeypatch):
    here = resource("/srv/report"), resource("/srv/report", shared=True)
    monkeypatch.setattr(socket, "gethostname", lambda: "an-other")

    assert resource("/srv/report") != here[0]
    assert resource("/srv/report", shared=True) == here[1]


@pytest.mark.parametrize("host", ["", ":", "'", "a:'/srv", "web 1\n", "%"])
def test_a_host_of_any_name_is_never_mistaken_for_a_part_of_the_path(monkeypatch, host):
    shared = resource("/srv/report", shared=True)
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    assert checked(resource("/srv/report")) != shared


ODD = [
    "/o/a\nb", "/o/a%0Ab", "/o/a%b", "/o/a%25b", "/o/ a", "/o/a ", "/o/a\t", "/o/a", "/o/a'b", "/o/'a'", "/o/a#b",
    "/o/\udcff", "/o/%FF", "/o/%ED%B3%BF", "/o/\x7f", "/o/\x85", "/o/\u2028", "/o/é", "/o/e\u0301", "/o/日報",
    "/o/a:b", "/o/a\\nb", "/o/*", "/o/" + "x" * 600, "/o/" + "x" * 601, "/o/" + "é" * 700,
    "/o/" + "y\n" * 200, "/o/" + "y\n" * 200 + "z", "/o/" + "%" * 300,
]  # fmt: skip


def test_odd_paths_have_names_that_claims_can_have_and_all_different():
    names = [resource(path) for path in ODD]

    assert len(set(names)) == len(ODD)
    for name in names:
        assert len(name) <= MAX_LENGTH
        assert claim(name).name == name


def test_bytes_and_text_of_one_odd_path_are_one():
    assert resource(b"/o/\xff") == resource("/o/\udcff")
    assert resource("/o/é".encode()) == resource("/o/é")


@pytest.mark.parametrize("path, why", [("", "empty"), (b"", "empty"), ("/a\0b", "null"), ("/a\ud800", "surrogates")])
def test_what_no_file_can_be_called_is_refused(path, why):
    with pytest.raises(InvalidClaim, match=why):
        resource(path)


@pytest.mark.parametrize("address", ["s3://bucket/key", "https://example.org/x", "file:///srv/x", "redis+tls://h/0"])
def test_an_address_is_no_path_and_is_told_how_to_be_named(address):
    with pytest.raises(InvalidClaim, match=r"claim\('upload', key="):
        resource(address)


def test_a_path_that_only_looks_like_a_drive_or_a_scheme_is_one(home):
    assert resource("c:/x") == resource(home / "c:" / "x")
    assert resource("mailto:x") == resource(home / "mailto:x")


def test_a_working_directory_that_is_gone_is_told(home, monkeypatch):
    (home / "gone").mkdir()
    monkeypatch.chdir(home / "gone")
    (home / "gone").rmdir()

    with pytest.raises(InvalidClaim, match="full path"):
        resource("x")
    assert resource("/srv/x") == f"file:{HOST}:'/srv/x'"


def test_links_in_a_circle_still_have_a_name(home):
    (home / "one").symlink_to("two")
    (home / "two").symlink_to("one")

    assert checked(resource("one"))


# Rows and tables.


def test_a_row_is_named_by_model_and_primary_key():
    assert resource(Shop(pk=5)) == "row:resources_tests.shop:5"
    assert resource(Lease(shop_id=5)) == "row:resources_tests.lease:5"
    assert resource(Shop(pk=5), shared=True) == resource(Shop(pk=5))


def test_rows_with_the_same_text_differ():
    key = uuid.uuid4()

    assert len({resource(each) for each in (Shop(pk=1), Shop(pk=2), Shop(pk=11), Branch(pk=key), Branch())}) == 5


@pytest.mark.parametrize("proxy", [Market, Stall])
def test_a_proxy_is_the_model_behind_it(proxy):
    assert resource(proxy(pk=5)) == resource(Shop(pk=5))
    assert resource(proxy) == resource(Shop)


def test_a_key_in_another_type_is_the_same_row():
    key = uuid.uuid4()

    assert resource(Shop(pk="5")) == resource(Shop(pk=5))
    assert resource(Branch(pk=str(key))) == resource(Branch(pk=key)) == resource(Branch(pk=key.hex))
    assert resource(Lease(shop_id="5")) == resource(Lease(shop=Shop(pk=5)))


def test_a_composite_key_is_named_by_its_parts():
    assert resource(Shelf(row=1, bay="2")) == resource(Shelf(row="1", bay=2)) == "row:resources_tests.shelf:1,'2'"
    assert resource(Shelf(row=1, bay="a,'b")) != resource(Shelf(row=1, bay="a"))


@pytest.mark.parametrize("instance", [Shop(), Market(), Lease(), Shelf(), Shelf(bay="2")], ids=repr)
def test_what_is_not_saved_is_told_to_be(instance):
    with pytest.raises(InvalidClaim, match="Save it first"):
        resource(instance)


def test_a_key_that_cannot_be_one_is_refused():
    with pytest.raises(InvalidClaim, match="no primary key"):
        resource(Shop(pk="five"))


def test_the_database_alias_is_no_part_of_a_row():
    shop = Shop(pk=5)
    shop._state.db = "other"

    assert resource(shop) == resource(Shop(pk=5))


def test_a_table_is_named_by_its_model():
    assert resource(Shop) == "table:resources_tests.shop"
    assert resource(Shop) != resource(Branch)


def test_an_abstract_model_has_no_table():
    with pytest.raises(InvalidClaim, match="abstract"):
        resource(Base)


# Databases.


class FakeWrapper(SqliteWrapper):
    """A connection of another vendor, never opened."""

    def __init__(self, vendor, **settings):
        super().__init__({**connections.settings["default"], **settings}, "fake")
        self.vendor = vendor


def database(vendor="postgresql", shared=False, **settings):
    return resource(FakeWrapper(vendor, **{"NAME": "shop", "USER": "u", "PASSWORD": "secret", **settings}), shared)


def test_a_database_is_named_by_engine_host_port_and_name():
    assert database(HOST="db-1", PORT="5433") == "database:postgresql:db-1:5433:'shop'"
    assert database("mysql", HOST="db-1") == "database:mysql:db-1:3306:'shop'"
    assert database("other", HOST="db-1") == "database:other:db-1::'shop'"
    assert database(HOST="::2", PORT=1) == "database:postgresql:%3A%3A2:1:'shop'"


@pytest.mark.parametrize(
    "same",
    [
        {"PORT": "5432"}, {"PORT": 5432}, {"HOST": "DB-1"}, {"HOST": "db-1."}, {"USER": "other", "PASSWORD": ""},
        {"HOST": "", "OPTIONS": {"host": "db-1"}}, {"OPTIONS": {"port": 5432}}, {"CONN_MAX_AGE": 5},
        {"NAME": "", "OPTIONS": {"dbname": "shop"}}, {"OPTIONS": {"sslmode": "require"}},
    ],
    ids=str,
)  # fmt: skip
def test_two_aliases_to_one_database_agree(same):
    assert database(**{"HOST": "db-1", **same}) == database(HOST="db-1")


@pytest.mark.parametrize(
    "other",
    [{"PORT": "5433"}, {"HOST": "db-2"}, {"NAME": "shop2"}, {"NAME": "SHOP"}, {"OPTIONS": {"service": "s"}}],
    ids=str,
)
def test_two_databases_differ(other):
    assert database(**{"HOST": "db-1", **other}) != database(HOST="db-1")


def test_a_server_on_this_machine_is_this_machines(monkeypatch):
    local = {database(HOST=host) for host in ("", "localhost", "127.0.0.1", "::1", "/var/run/postgresql")}
    assert local == {f"database:postgresql:{quote(socket.gethostname().lower(), safe='')}:5432:'shop'"}

    monkeypatch.setattr(socket, "gethostname", lambda: "DB-9")
    assert database(HOST="localhost") == database(HOST="db-9")
    assert database(HOST="localhost", shared=True) == "database:postgresql::5432:'shop'"


def test_no_name_shows_a_password():
    assert "secret" not in database(HOST="db-1") + database(OPTIONS={"service": "s"})


def sqlite(name, **settings):
    return resource(SqliteWrapper({**connections.settings["default"], "NAME": name, **settings}, "fake"))


def test_an_sqlite_database_is_its_file(home):
    file = home / "reports" / "shop.sqlite3"

    for spelling in (file, str(file), "link/shop.sqlite3", f"file:{file}", f"file:{file}?mode=ro", f"file://{file}",
                     f"file://localhost{file}#x", "file:reports/shop%2Esqlite3?cache=shared"):  # fmt: skip
        assert sqlite(spelling) == resource(file)
    assert resource(SqliteWrapper({"NAME": str(file)}, "fake"), shared=True) == resource(file, shared=True)


@pytest.mark.parametrize("name", [":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory&cache=shared"])
def test_a_database_in_memory_is_this_processs(name):
    assert sqlite(name).startswith(f"memory:{HOST}:{os.getpid()}:")


def test_the_connection_of_a_thread_and_the_proxy_for_it_are_one():
    assert resource(connection) == resource(connections["default"])


# Anything else.


@pytest.mark.parametrize(
    "thing",
    [None, 5, 5.0, True, object(), ("a", "b"), ["/srv/x"], {"a": 1}, object, int, models.Model, connections,
     Shop.objects.all(), Shop.objects, Shop._meta.pk, ContentFile(b"x", "x"), sys.stdin],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_what_has_no_name_is_told_what_has(thing):
    with pytest.raises(InvalidClaim, match="Pass a path, a saved model instance"):
        resource(thing)


def test_things_of_different_kinds_never_share_a_name(home):
    things = [Shop, Shop(pk=5), "Shop", connection, "row:resources_tests.shop:5", "table:resources_tests.shop"]

    assert len({resource(thing) for thing in things} | {resource("x", shared=True)}) == 7


def test_a_resource_is_claimed_like_any_name_and_may_take_a_key(home):
    assert claim(resource("daily"), key="part-1").name == f"{resource('daily')}:'part-1'"

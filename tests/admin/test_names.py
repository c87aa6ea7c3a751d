"""Names, labels, notes and reasons of any text: shown as text everywhere, and every link and button finds its claim."""

import html
import logging
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_claims import claim, request_stop, stop_flag
from django_claims.admin.keys import find, key_of, split
from django_claims.admin.words import plain
from tests.admin.conftest import CHANGE, FLAGS, LIST, ROWS, look, page, press, tell

SCRIPT = "<script>alert('x')</script>"
NAMES = [
    SCRIPT,
    "\"><img src=x onerror=alert(1)>'",
    "{{ secret }} {% now 'Y' %} %(name)s {name}",
    "a/b:c?d=e&f#g;h%2Fi_2F+j",
    "العربية \u202eevil\u202c",
    "a\u2028b\u2029c",
    "claim  with   blanks",
    "x" * 500,
    "名" * 500,
    "🦊" * 500,
    "sha256=" + "0" * 64,
    "&lt;b&gt;",
]


def ids(name):
    return ascii(name)[:30]


@pytest.mark.parametrize("name", NAMES, ids=ids)
def test_a_claim_of_any_name_can_be_found_stopped_kept_cleared_and_released(staff, held, name):
    hold = held(name, label=f"label {SCRIPT}")
    tell(hold, 1, 2, note=f"note {SCRIPT}")

    page = look(staff)
    assert page.names == [plain(name)]
    assert SCRIPT not in page.source
    address = page.source.split('class="claims-name"><a href="')[1].split('"')[0]
    assert len(address) < 2000, "servers refuse longer lines"
    assert look_at(staff, html.unescape(address)).form("stop")["name"] == name

    press(staff, page.form("stop"), reason=f"reason {SCRIPT}")
    assert stop_flag(name).fence == hold.fence
    for where, *args in ((LIST,), (FLAGS,), (CHANGE, key_of("default", name))):
        found = look(staff, where, *args)
        assert found.status == 200
        assert SCRIPT not in found.source
    entry = LogEntry.objects.get()
    assert look_at(staff, entry.get_admin_url()).form("clear_stop")["name"] == name

    page = press(staff, look(staff, FLAGS).form("clear_stop"))
    assert SCRIPT not in page.source
    assert stop_flag(name) is None
    confirm = press(staff, {**look(staff).form("stop"), "act": "force_release"})
    assert SCRIPT not in confirm.source
    page = press(staff, confirm.form("force_release"))
    assert SCRIPT not in page.source
    assert claim(name).available()


@pytest.mark.parametrize("name", NAMES, ids=ids)
def test_a_selection_of_any_name_is_found_and_followed(staff, held, name):
    held(name)
    run = html.unescape(look(staff).source.split('name="run" value="')[1].split('"')[0])

    response = staff.post(reverse("admin:django_claims_liveclaim_act"), {"act": "stop", "run": run})

    assert stop_flag(name) is not None
    assert len(response["Location"]) < 2000
    followed = page(staff.get(response["Location"]))
    assert "Stop" in followed.source.split('id="claims-followed"')[1].split("</ul>")[0]


def test_the_address_after_a_stop_of_many_long_names_is_not_too_long(staff, held):
    held(*(f"{number}{'long ' * 50}name" for number in range(50)))
    runs = re.findall(r'name="run" value="([^"]*)"', look(staff).source)

    response = staff.post(
        reverse("admin:django_claims_liveclaim_act"), {"act": "stop", "run": runs, "back": "q=" + "x" * 9000}
    )

    assert 1000 < len(response["Location"]) < 2000
    assert page(staff.get(response["Location"])).status == 200


def look_at(client, address):
    return page(client.get(address))


@pytest.mark.parametrize(
    "text", [SCRIPT, '"><b>', "{{ x }}", "\u202e", "%(x)s", "\x00", "\ud800".encode("utf-8", "replace")]
)
def test_what_an_address_asks_for_is_shown_as_text(staff, held, text):
    held("a")

    for name in ("q", "group", "host", "state", "alias", "o", "p", "run", "in"):
        for where in (LIST, ROWS):
            source = look(staff, where, **{name: text}).source
            assert SCRIPT not in source
            assert '"><b>' not in source
    assert look(staff, FLAGS, q=SCRIPT).status == 200


def test_what_a_form_brings_is_shown_as_text_on_the_confirmation_page(staff, held):
    form = {**look(staff).form("stop"), "act": "force_release"} if held("a") else {}

    source = press(staff, form, reason=SCRIPT, back=f"q={SCRIPT}", **{"from": SCRIPT}).source

    assert SCRIPT not in source


def test_the_log_of_an_act_stays_on_one_line(staff, held, caplog):
    held("a\u2028b")
    with caplog.at_level(logging.INFO):
        press(staff, look(staff).form("stop"), act="force_release", confirm="yes", reason="one\r\ntwo\x1b[31m\u202e")

    message = LogEntry.objects.get().get_change_message()
    assert message.isprintable()
    assert "\u2028" not in LogEntry.objects.get().object_repr


def test_names_stand_apart_from_the_text_around_them(staff, held):
    held("\u202eevil")
    request_stop("\u202ekept", keep=True, reason="\u202ewhy", by="\u202ewho")

    assert r"<bdi>\u202eevil</bdi>" in look(staff).source
    assert r"<bdi>\u202ewhy</bdi>" in look(staff, FLAGS).source
    assert r"<bdi>\u202ewho</bdi>" in look(staff, FLAGS).source


def test_keys_are_short_unique_and_found_again(settings):
    settings.CLAIMS = {alias: {"BACKEND": "x"} for alias in ("default", "default:x", "d")}
    seen = set()
    for alias in settings.CLAIMS:
        for name in NAMES:
            key = key_of(alias, name)
            assert len(key) <= 600 + len(alias)
            assert find(key, lambda alias: NAMES) == (alias, name)
            seen.add(key)
    assert len(seen) == 3 * len(NAMES)
    assert split("nowhere:a") is None
    assert find("default:sha256=" + "1" * 64, lambda alias: NAMES) is None


def test_a_long_name_that_has_ended_has_a_page_still(staff, held):
    hold = held("名" * 500)
    press(staff, look(staff).form("stop"))
    hold.release()

    found = look_at(staff, LogEntry.objects.get().get_admin_url())

    assert found.status == 200
    assert "already ended" in found.text
    assert "名" * 200 in found.text, "as the log called it"
    assert "Asked the run" in found.text


def test_a_key_without_an_alias_of_ours_is_not_found(staff):
    assert look(staff, CHANGE, "nowhere:a").status == 404
    assert look(staff, CHANGE, "default").status == 404
    assert look(staff, CHANGE, "default: a").status == 404

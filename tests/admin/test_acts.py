"""The buttons: what each does, to which run, and what it leaves alone."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import CHANGE as CHANGED
from django.contrib.admin.models import DELETION, LogEntry
from django.utils import timezone

from django_claims import claim, list_stop_flags, request_stop, stop_flag
from django_claims.exceptions import BackendUnavailable
from tests.admin.conftest import CHANGE, FLAGS, look, press
from tests.helpers import faults, wait_until


def nothing_changed(hold):
    """Say whether a hold is as it was, and nothing asks it to stop."""
    return hold.verify() and stop_flag(hold.name) is None and not LogEntry.objects.exists()


def test_stop_asks_the_run_that_the_page_shows(staff, held):
    hold = held("import")

    page = press(staff, look(staff).form("stop"), reason="disk full")

    flag = stop_flag("import")
    assert (flag.fence, flag.keep, flag.reason, flag.by) == (hold.fence, False, "disk full", "ann")
    assert "“import” was asked to stop" in page.text
    wait_until(lambda: hold.stop_requested)


def test_after_stop_the_list_follows_the_run_until_it_has_ended(staff, held):
    hold = held("import")
    response = staff.post("/admin/django_claims/liveclaim/act/", look(staff).form("stop"))
    followed = response["Location"]
    assert "import: Stop" in look_at(staff, followed).text

    hold.release()
    hold = held("import")

    page = look_at(staff, followed)
    assert "import: has ended" in page.text
    assert "Running" in page.row("import").text, "the next run is another one"
    assert staff.get(followed.replace("/liveclaim/", "/liveclaim/rows/")).json()["follows"] is False


def look_at(client, address):
    from tests.admin.conftest import page

    return page(client.get(address))


def test_a_stale_page_stops_nobody(staff, held):
    held("import").release()
    first = claim("import").acquire()
    form = look(staff).form("stop")
    first.release()
    second = held("import")

    for act in ("stop", "keep_stopped", "clear_stop", "force_release"):
        page = press(staff, form, act=act, confirm="yes")

        assert "already ended" in page.text, act
        assert page.names == ["import"], "back at the list"
        assert nothing_changed(second), act


def test_a_run_that_has_ended_is_left_alone_with_a_warning(staff, held):
    hold = held("import")
    form = look(staff).form("stop")
    hold.release()

    page = press(staff, form)

    assert page.status == 200
    assert "already ended" in page.text
    assert 'class="warning"' in page.source
    assert list_stop_flags() == []


def test_stop_and_keep_stopped_takes_a_reason_and_an_end(staff, held):
    held("nightly")
    form = look(staff, CHANGE, "default:nightly").form("keep_stopped")
    until = (timezone.localtime() + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M")

    page = press(staff, form, reason="migration", until=until)

    flag = stop_flag("nightly")
    assert (flag.keep, flag.reason, flag.by) == (True, "migration", "ann")
    assert 7000 < (flag.expires_at - flag.requested_at).total_seconds() <= 7200
    assert "“nightly” is kept stopped" in page.text
    assert "then kept stopped" in page.text


def test_an_end_is_a_local_time_with_or_without_time_zones(staff, held, settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    held("nightly")
    form = look(staff, CHANGE, "default:nightly").form("keep_stopped")
    until = (datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M")

    press(staff, form, until=until)

    flag = stop_flag("nightly")
    assert 7000 < (flag.expires_at - flag.requested_at).total_seconds() <= 7200
    message = LogEntry.objects.get().get_change_message()
    assert re.search(r"until .*20\d\d.* (CET|CEST)\.$", message), message


@pytest.mark.parametrize("until", ["2001-01-01T00:00", "9999-12-31T23:59", "tomorrow"])
def test_an_end_that_is_none_is_asked_for_again(staff, held, until):
    hold = held("nightly")
    form = look(staff, CHANGE, "default:nightly").form("keep_stopped")

    page = press(staff, form, until=until, reason="why I ask")

    assert page.status == 200
    assert "errorlist" in page.source
    assert "why I ask" in page.source
    assert nothing_changed(hold)


def test_a_name_that_nobody_holds_can_be_kept_stopped(staff):
    form = look(staff, CHANGE, "default:later").form("keep_stopped")

    press(staff, form)

    assert stop_flag("later").keep


def test_clear_stop_lets_it_run(staff):
    request_stop("nightly", keep=True)

    page = press(staff, look(staff).form("clear_stop"))

    assert "was cleared" in page.text
    assert claim("nightly").available()


def test_clear_takes_back_the_stop_of_a_run(staff, held):
    hold = held("import")
    request_stop("import")

    press(staff, look(staff).form("clear_stop"))

    assert stop_flag("import") is None
    wait_until(lambda: not hold.stop_requested)


def test_clear_on_the_flags_page_leaves_a_later_stop_alone(staff):
    request_stop("nightly", keep=True, reason="first")
    form = look(staff, FLAGS).form("clear_stop")
    press(staff, form)
    assert stop_flag("nightly") is None
    request_stop("nightly", keep=True, reason="second")

    page = press(staff, form)

    assert "another stop has been asked for" in page.text
    assert stop_flag("nightly").reason == "second"


def test_clear_of_what_has_no_stop_says_so(staff):
    request_stop("nightly", keep=True)
    form = look(staff).form("clear_stop")
    press(staff, form)

    assert "has no stop any more" in press(staff, form).text


def test_force_release_asks_first_in_words_with_the_last_heartbeat(staff, held):
    hold = held("import", label="manage.py import")
    form = look(staff, CHANGE, "default:import").form("force_release")

    page = press(staff, form)

    assert hold.verify(), "nothing happens before it is confirmed"
    assert "two may run at the same time" in page.text
    assert "Last heartbeat" in page.text
    assert "0 s ago" in page.text
    assert "manage.py import" in page.text

    page = press(staff, page.form("force_release"), reason="host is gone")

    assert "was force-released" in page.text
    assert not hold.verify()
    assert claim("import").available()


def test_a_run_that_ends_before_the_confirmation_is_left_alone(staff, held):
    hold = held("import")
    confirm = press(staff, look(staff, CHANGE, "default:import").form("force_release"))
    hold.release()
    second = held("import")

    page = press(staff, confirm.form("force_release"))

    assert "already ended" in page.text
    assert nothing_changed(second)


def test_a_run_that_ends_before_the_question_is_not_asked_about(staff, held):
    hold = held("import")
    form = look(staff, CHANGE, "default:import").form("force_release")
    hold.release()

    page = press(staff, form)

    assert "already ended" in page.text
    assert page.names == []


def test_the_page_of_a_claim_that_ended_meanwhile_says_so(staff, held):
    hold = held("import")
    assert "Running" in look(staff, CHANGE, "default:import").text
    hold.release()

    page = look(staff, CHANGE, "default:import")

    assert page.status == 200
    assert "already ended" in page.text


def test_every_act_is_noted_with_user_claim_and_reason(staff, held):
    held("import")
    page = look(staff)
    press(staff, page.form("stop"), reason="slow\nas ever")
    press(staff, page.form("stop"), act="keep_stopped", reason="r2")
    press(staff, page.form("stop"), act="clear_stop")
    press(staff, page.form("stop"), act="force_release", confirm="yes", reason="r3")

    entries = list(LogEntry.objects.order_by("pk"))

    assert {str(entry.user) for entry in entries} == {"ann"}
    assert {(entry.object_repr, entry.object_id) for entry in entries} == {("import", "default:import")}
    assert [entry.action_flag for entry in entries] == [CHANGED, CHANGED, CHANGED, DELETION]
    messages = [entry.get_change_message() for entry in entries]
    assert re.fullmatch(r"Asked the run with fence \d+ to stop\. Reason: slow.*as ever", messages[0])
    assert "\n" not in messages[0]
    assert "kept stopped until cleared. Reason: r2" in messages[1]
    assert "Cleared" in messages[2]
    assert "Force-released" in messages[3]
    assert "r3" in messages[3]
    shown = look_at(staff, entries[0].get_admin_url())
    assert all(message in shown.text for message in messages), "the page of the claim shows them"


def test_a_selection_is_stopped_at_once_and_what_has_ended_is_left(staff, held):
    a, b = held("a"), held("b")
    held("c")
    source = look(staff).source
    runs = re.findall(r'name="run" value="([^"]*)"', source)
    assert len(runs) == 3
    b.release()
    b2 = held("b")

    page = press(staff, {"act": "stop", "run": runs[:2]})

    assert "1 run was asked to stop." in page.text
    assert "1 run has already ended" in page.text
    assert stop_flag("a").fence == a.fence
    assert stop_flag("c") is None
    assert b2.verify()
    assert stop_flag("b") is None


@pytest.mark.parametrize("act", ["keep_stopped", "force_release"])
def test_a_selection_is_asked_about_before_it_is_kept_stopped_or_released(staff, held, act):
    held("a", "b")
    runs = re.findall(r'name="run" value="([^"]*)"', look(staff).source)

    page = press(staff, {"act": act, "run": runs})
    assert list_stop_flags() == []
    assert claim("a").lease() is not None
    assert "errorlist" not in page.source
    assert page.text.count("Running") == 2

    press(staff, {"act": act, "run": runs, "confirm": "yes", "reason": "both"})

    if act == "keep_stopped":
        assert {(flag.name, flag.keep, flag.reason) for flag in list_stop_flags()} == {
            ("a", True, "both"),
            ("b", True, "both"),
        }
    else:
        assert claim("a").lease() is None
        assert claim("b").lease() is None
    assert LogEntry.objects.count() == 2


def test_stops_of_a_selection_are_cleared(staff, held):
    held("a")
    request_stop("a")
    request_stop("kept", keep=True)
    runs = re.findall(r'name="run" value="([^"]*)"', look(staff).source)

    page = press(staff, {"act": "clear_stop", "run": runs})

    assert "2 stops were cleared." in page.text
    assert list_stop_flags() == []


def test_nothing_selected_says_so(staff, held):
    held("a")

    assert "Nothing was selected" in press(staff, {"act": "stop"}).text
    assert "Nothing was selected" in press(staff, {"act": "stop", "run": ["- default:a"]}).text


@pytest.mark.parametrize(
    "changes",
    [
        {"act": "destroy"}, {"act": ""}, {"alias": "elsewhere"}, {"name": ""}, {"name": "a\nb"}, {"name": "x" * 501},
        {"fence": "1.5"}, {"fence": "-1"}, {"fence": "²"}, {"fence": "9" * 30}, {"fence": ""},
    ],
)  # fmt: skip
def test_a_form_that_makes_no_sense_is_a_bad_request(staff, held, changes):
    hold = held("a")

    page = press(staff, {**look(staff).form("stop"), **changes})

    assert page.status == 400
    assert nothing_changed(hold)


def test_a_store_that_does_not_answer_an_act_is_an_error_and_not_a_no(staff, held):
    held("a")
    form = look(staff).form("stop")

    for act, verb in (("stop", "set_flag"), ("force_release", "force_release"), ("clear_stop", "clear_flag")):
        faults.fail(verb)
        page = press(staff, form, act=act, confirm="yes")
        faults.clear()

        assert page.status == 200
        assert "nobody can tell" in page.text
        assert "already ended" not in page.text
    assert not LogEntry.objects.exists()


def test_a_store_that_does_not_answer_the_question_is_an_error_and_not_a_no(staff, held):
    held("a")
    form = look(staff, CHANGE, "default:a").form("force_release")
    faults.fail("lease", error=BackendUnavailable("default", "timed out"))

    page = press(staff, form)

    assert "nobody can tell" in page.text
    assert "already ended" not in page.text


def test_a_selection_of_which_the_store_fails_half_way_says_how_many_were_not_tried(staff, held):
    held("a", "b", "c")
    runs = re.findall(r'name="run" value="([^"]*)"', look(staff).source)
    faults.fail_in_turn("set_flag", None, BackendUnavailable("default", "timed out"))

    page = press(staff, {"act": "stop", "run": runs})

    assert "nobody can tell" in page.text
    assert "1 of the selected was not tried" in page.text
    assert stop_flag("a") is not None
    assert stop_flag("c") is None


def test_a_list_comes_back_as_it_was_and_nowhere_else(staff, held):
    held("import:a")
    form = look(staff, group="import", o="-held").form("stop")

    response = staff.post("/admin/django_claims/liveclaim/act/", {**form, "back": "https://evil.example/?x=1"})
    assert response["Location"].startswith("/admin/django_claims/liveclaim/?")

    response = staff.post("/admin/django_claims/liveclaim/act/", form)
    assert response["Location"].startswith("/admin/django_claims/liveclaim/?group=import&o=-held")


def test_acts_while_claims_are_off_change_nothing_and_say_so(staff, settings):
    settings.CLAIMS = None

    page = press(staff, {"act": "stop", "alias": "default", "name": "a", "fence": "1"})

    assert "Claims are off" in page.text


def test_an_unreadable_lease_can_only_be_released_by_force(staff, held):
    from django_claims.backends import memory

    held("strange")
    store = next(iter(memory.stores.values()))
    store.rows["strange"].progress = "no JSON"

    assert "Cannot be read" in look(staff).row("strange").text
    page = look(staff, CHANGE, "default:strange")
    assert [form["act"] for form in page.forms] == ["keep_stopped", "force_release"]
    assert page.form("force_release")["fence"] == "0"


def test_a_log_that_cannot_be_written_is_said_and_hides_no_act(staff, held, monkeypatch):
    from django.db import DatabaseError

    def fails(*args, **kwargs):
        raise DatabaseError("disk full")

    held("a")
    monkeypatch.setattr(type(LogEntry.objects), "log_actions", fails)

    page = press(staff, look(staff).form("stop"))

    assert "was asked to stop" in page.text
    assert "The admin log could not be written." in page.text
    assert stop_flag("a") is not None


def test_the_question_shows_what_is_kept_stopped_already_and_why(staff):
    request_stop("nightly", keep=True, reason="bob's migration")
    run = re.findall(r'name="run" value="([^"]*)"', look(staff).source)

    page = press(staff, {"act": "keep_stopped", "run": run})

    assert "Kept stopped" in page.text
    assert "bob's migration" in page.text


def test_the_page_of_a_claim_follows_it_until_it_has_ended(staff, held):
    hold = held("import")
    rows = "/admin/django_claims/liveclaim/rows/"
    assert "data-follows" not in look(staff, CHANGE, "default:import").source
    press(staff, look(staff).form("stop"))
    assert "data-follows" in look(staff, CHANGE, "default:import").source

    found = staff.get(rows, {"claim": "default:import"}).json()
    assert found["follows"] is True
    assert found["claim"]["name"] == "import"
    assert found["said"] in ("Stop asked", "Stopping")

    hold.release()
    found = staff.get(rows, {"claim": "default:import"}).json()
    assert found["follows"] is False
    assert found["said"] == "Ended"
    assert "already ended" in found["html"]

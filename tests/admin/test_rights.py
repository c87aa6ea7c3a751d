"""Who may do what: asked when a button is drawn, and again when it is pressed."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import reverse

from django_claims import claim, request_stop, stop_flag
from tests.admin.conftest import ACT, ALL_RIGHTS, CHANGE, FLAGS, LIST, ROWS, look, page, press

ACTS = {
    "stop": "stop_claim",
    "keep_stopped": "stop_claim",
    "clear_stop": "clear_stop_claim",
    "force_release": "force_release_claim",
}


def form_of(act, hold):
    return {"act": act, "alias": "default", "name": hold.name, "fence": str(hold.fence), "confirm": "yes"}


@pytest.mark.parametrize("address", [LIST, FLAGS, ROWS])
def test_the_pages_are_for_those_who_may_view(user, address):
    assert look(user(), address).status == 403
    assert look(user("stop_claim", name="bob"), address).status == 403
    assert look(user("view_claim", name="eve"), address).status == 200


def test_the_page_of_a_claim_is_for_those_who_may_view(user):
    assert look(user("stop_claim"), CHANGE, "default:a").status == 403
    assert page(user("stop_claim", name="bob").get(reverse(ROWS), {"claim": "default:a"})).status == 403


def test_who_is_not_staff_is_asked_to_log_in(db):
    client = Client()
    client.force_login(User.objects.create_user("visitor", is_staff=False))

    for address in (LIST, FLAGS, ROWS, ACT):
        for someone in (client, Client()):
            response = someone.get(reverse(address))
            assert response.status_code == 302
            assert "/login/" in response["Location"]


@pytest.mark.parametrize("act", ACTS)
def test_an_act_needs_its_own_right_and_no_other(user, held, act):
    hold = held("a")
    request_stop("a") if act == "clear_stop" else None
    others = [right for right in ALL_RIGHTS if right != ACTS[act]]
    form = form_of(act, hold)

    assert press(user(*others), form).status == 403
    assert hold.verify()
    assert not LogEntry.objects.exists()
    assert press(user("view_claim", ACTS[act], name="bob"), form).status == 200
    assert LogEntry.objects.count() == 1


def test_who_may_stop_and_not_view_is_not_sent_to_a_page_that_is_closed(user, held):
    hold = held("a")

    found = press(user("stop_claim"), {**form_of("stop", hold), "from": "claim"})

    assert found.status == 200
    assert "was asked to stop" in found.text
    assert stop_flag("a") is not None


def test_buttons_are_drawn_for_those_who_may_press_them(user, held):
    held("a")
    request_stop("kept", keep=True)

    viewer, stopper = user("view_claim"), user("view_claim", "stop_claim", name="bob")

    for address, *args in ((LIST,), (FLAGS,), (CHANGE, "default:a")):
        assert look(viewer, address, *args).forms == []
    assert {form["act"] for form in look(stopper).forms if "act" in form} == {"stop"}
    assert [form["act"] for form in look(stopper, CHANGE, "default:a").forms] == ["stop", "keep_stopped"]
    assert look(stopper, FLAGS).forms == []
    assert "Force-release the selected" not in look(stopper).text


def test_only_a_post_acts(staff, held):
    hold = held("a")
    form = form_of("stop", hold)

    for method in (staff.get, staff.head, staff.put, staff.delete, staff.options):
        response = method(reverse(ACT), form)
        assert response.status_code == 405
        assert response["Allow"] == "POST"
    assert staff.get(reverse(LIST), form).status_code == 200
    assert stop_flag("a") is None


def test_a_post_without_the_token_is_refused(staff, held):
    hold = held("a")
    careful = Client(enforce_csrf_checks=True, headers={"referer": "http://testserver/"})
    careful.cookies = staff.cookies

    assert careful.post(reverse(ACT), form_of("stop", hold)).status_code == 403
    assert stop_flag("a") is None

    source = look(careful).source
    token = source.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    assert press(careful, {**form_of("stop", hold), "csrfmiddlewaretoken": token}).status == 200
    assert stop_flag("a") is not None


def test_read_only_takes_all_buttons_away_even_from_a_superuser(db, settings, held):
    hold = held("a")
    settings.CLAIMS_ADMIN_READ_ONLY = True
    client = Client()
    client.force_login(User.objects.create_superuser("root"))

    assert look(client).names == ["a"]
    for address, *args in ((LIST,), (FLAGS,), (CHANGE, "default:a")):
        assert look(client, address, *args).forms == []
    for act in ACTS:
        assert press(client, form_of(act, hold)).status == 403
    assert hold.verify()


def test_a_read_only_setting_that_is_neither_is_said(staff, settings):
    settings.CLAIMS_ADMIN_READ_ONLY = "yes"

    with pytest.raises(ImproperlyConfigured, match="CLAIMS_ADMIN_READ_ONLY should be True or False"):
        look(staff)


def test_a_rule_of_the_sites_own_is_asked_for_each_claim(staff, held):
    billing, other = held("billing:run"), held("other")

    found = page(staff.get("/careful/django_claims/liveclaim/"))
    assert found.names == ["billing:run", "other"], "it hides buttons, not rows"
    assert [form["name"] for form in found.forms if "name" in form] == ["other"]
    assert page(staff.get("/careful/django_claims/liveclaim/default:billing_3Arun/change/")).forms == []

    url = "/careful/django_claims/liveclaim/act/"
    assert staff.post(url, form_of("stop", billing)).status_code == 403
    assert staff.post(url, form_of("force_release", other)).status_code == 403
    both = [f"{hold.fence} default:{hold.name}" for hold in (billing, other)]
    found = page(staff.post(url, {"act": "stop", "run": both}, follow=True))
    assert "1 claim was left alone" in found.text
    assert stop_flag("billing:run") is None
    assert stop_flag("other") is not None


def test_the_flags_page_obeys_the_rule_too(staff):
    request_stop("billing:run", keep=True)
    request_stop("other", keep=True)

    found = page(staff.get("/careful/django_claims/stoprequestrow/"))

    assert found.names == ["billing:run", "other"]
    assert [form["name"] for form in found.forms] == ["other"]


def test_stop_flags_can_be_shown_on_a_site_that_has_no_claims_page(staff):
    request_stop("a", keep=True)

    found = page(staff.get("/flags/django_claims/stoprequestrow/"))

    assert found.names == ["a"]
    assert found.forms == []


def test_another_site_has_pages_of_its_own(staff, held):
    hold = held("a")

    source = page(staff.get("/other/django_claims/liveclaim/")).source
    assert 'action="/other/django_claims/liveclaim/act/"' in source
    assert 'data-rows="/other/django_claims/liveclaim/rows/"' in source
    assert "/admin/django_claims/" not in source

    response = staff.post("/other/django_claims/liveclaim/act/", form_of("stop", hold))
    assert response["Location"].startswith("/other/django_claims/liveclaim/")
    assert "/admin/django_claims/" not in page(staff.get("/other/django_claims/stoprequestrow/")).source


def test_the_index_of_the_site_leads_to_both_pages(staff):
    for address in ("/admin/", "/admin/django_claims/", "/other/"):
        source = page(staff.get(address)).source
        assert "/django_claims/liveclaim/" in source
        assert "/django_claims/stoprequestrow/" in source
        assert "/add/" not in source


def test_there_is_nothing_to_add_or_delete(staff, held):
    held("a")

    for address in ("add/", "default:a/delete/", "nonsense/"):
        assert staff.get(f"/admin/django_claims/liveclaim/{address}", follow=True).status_code == 404


@pytest.mark.django_db
def test_a_user_without_staff_gets_no_rights_from_the_permissions_alone():
    assert claim("a").available()
    client = Client()
    client.force_login(User.objects.create_user("x"))
    assert client.post(reverse(ACT), {"act": "stop"}).status_code == 302


def test_the_way_back_stays_on_the_same_site(staff, held):
    held("a")
    for address in ("liveclaim/", "liveclaim/default:a/change/", "stoprequestrow/"):
        source = staff.get(f"/other/django_claims/{address}").content.decode()
        way = source.split('class="claims-crumbs"')[1].split("</ol>")[0]

        assert 'href="/other/"' in way
        assert 'href="/other/django_claims/"' in way
        assert "/admin/" not in way

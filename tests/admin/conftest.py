"""Users with single rights, claims of this process that pass for shared ones, and what a page says."""

import html
import re
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_claims import claim, claim_backends
from tests.cli.stores import SharedBackend
from tests.helpers import tidy, wait_until

SHARED = f"{SharedBackend.__module__}.SharedBackend"
LIST = "admin:django_claims_liveclaim_changelist"
ACT = "admin:django_claims_liveclaim_act"
CHANGE = "admin:django_claims_liveclaim_change"
ROWS = "admin:django_claims_liveclaim_rows"
FLAGS = "admin:django_claims_stoprequestrow_changelist"
ALL_RIGHTS = ("view_claim", "stop_claim", "clear_stop_claim", "force_release_claim")

_tidy = pytest.fixture(autouse=True)(tidy)


@pytest.fixture(autouse=True)
def shared(settings):
    """The store: in memory, and passing for one that all processes see. `shared(**params)` sets others."""

    def use(backend=SHARED, **params):
        settings.CLAIMS = {"default": {"BACKEND": backend, **params}}

    use()
    return use


@pytest.fixture
def user(db):
    """Return a client that is logged in as staff with these rights: `user("view_claim")`."""

    def make(*rights, name="ann", **about):
        one = User.objects.create_user(name, is_staff=True, **about)
        one.user_permissions.set(
            Permission.objects.filter(codename__in=rights, content_type__app_label="django_claims")
        )
        client = Client()
        client.force_login(one)
        return client

    return make


@pytest.fixture
def staff(user):
    """A client that may do everything."""
    return user(*ALL_RIGHTS)


@pytest.fixture
def held():
    """Take claims, and return the last one's hold: `held("a", "b", label="…")`."""
    holds = []

    def take(*names, **how):
        holds.extend(claim(name, **how).acquire() for name in names)
        return holds[-1]

    return take


def tell(hold, done=None, total=None, note=None):
    """Report progress, and return when the store has it."""
    hold.checkpoint(done, total, note)
    store = claim_backends[hold.alias]
    wait_until(lambda: (lease := store.lease(hold.name)) and lease.progress and lease.progress.done == done)


@dataclass
class Page:
    """What a reader sees of a response."""

    status: int
    source: str

    @property
    def text(self):
        bare = re.sub(r"<(script|style)\b.*?</\1>", " ", self.source, flags=re.S)
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"</?(td|th|tr|p|li)\b", " <", bare))))

    @property
    def names(self):
        """The claims in the table, in order."""
        cells = re.findall(r'<th scope="row" class="claims-name">.*?<bdi>(.*?)</bdi>', self.source, re.S)
        return [html.unescape(cell) for cell in cells]

    def row(self, name):
        """What the row of a claim says."""
        for source in re.findall(r"<tr data-key.*?</tr>", self.source, re.S):
            if Page(200, source).names == [name]:
                return Page(200, source)
        raise AssertionError(f"no row of {name!r} among {self.names}")

    @property
    def forms(self):
        """The hidden fields of all forms that post, without their tokens."""
        found = []
        for form in re.findall(r'<form method="post".*?</form>', self.source, re.S):
            fields = re.findall(r'<input type="hidden" name="(\w+)" value="(.*?)"', form, re.S)
            found.append({name: html.unescape(value) for name, value in fields if name != "csrfmiddlewaretoken"})
        return [form for form in found if form]

    def form(self, act, name=None):
        """The form of one button."""
        fitting = [f for f in self.forms if f.get("act") == act and (name is None or f.get("name") == name)]
        assert len(fitting) == 1, f"{len(fitting)} forms of {act} {name}: {self.forms}"
        return fitting[0]


def page(response):
    return Page(response.status_code, response.content.decode())


def look(client, url=LIST, *args, **query):
    """Get one of our pages by the name of its address."""
    return page(client.get(reverse(url, args=args), query))


def press(client, form, url=ACT, **changes):
    """Send a form as a browser does, and follow to the page that it leads to."""
    return page(client.post(reverse(url), {**form, **changes}, follow=True))

"""What stands around the rows: column heads that sort, filters, page numbers, the sentence that counts."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_claims import conf
from django_claims.admin import words
from django_claims.admin.listing import Listing, Query


def _address(back: QueryDict, **changes: str) -> str:
    query = back.copy()
    query.pop("p", None)
    for name, value in changes.items():
        query[name] = value
    return f"?{query.urlencode()}"


def columns(query: Query, back: QueryDict) -> list[dict[str, Any]]:
    """Return the column heads; each is a link that sorts, and turns round when it has."""
    heads = {
        "name": _("Name"),
        "holder": _("Holder"),
        "held": _("Held for"),
        "beat": _("Last heartbeat"),
        "left": _("Time left"),
        "progress": _("Progress"),
        "state": pgettext("column", "State"),
    }
    found = []
    for order, label in heads.items():
        is_sorted = query.order == order
        turned = is_sorted and not query.reverse
        found.append(
            {
                "key": order,
                "label": label,
                "url": _address(back, o=f"-{order}" if turned else order),
                "sort": ("descending" if query.reverse else "ascending") if is_sorted else "",
            }
        )
    return found


def page_links(paginator: Paginator[Any], current: int, back: QueryDict) -> list[dict[str, Any]]:
    """Return links to the pages around this one; those without an address are the gaps."""
    if paginator.num_pages < 2:
        return []
    return [
        {
            "label": words.number(number),
            "url": _address(back, p=str(number)) if isinstance(number, int) else "",
            "is_current": number == current,
        }
        for number in paginator.get_elided_page_range(current, on_each_side=2, on_ends=1)
    ]


def filter_choices(query: Query, listing: Listing) -> dict[str, Any]:
    """Return what the filters offer: (value, label, whether chosen) each."""
    groups = [(group, f"{group} ({words.number(count)})") for group, count in listing.groups]
    if query.group and query.group not in dict(groups):
        groups.append((query.group, query.group))
    hosts = {row.host for row in listing.rows if row.host}
    return {
        "alias": [(alias, alias, alias == query.alias) for alias in conf.aliases()],
        "group": [(value, label, value == query.group) for value, label in groups],
        "state": [(value, label, value == query.state) for value, label in words.STATES.items()],
        "hosts": sorted(hosts),
    }


def summary(listing: Listing) -> str:
    """Return how many there are, in a sentence for people who do not see the table."""
    if not conf.enabled():
        return _("Claims are off.")
    said = ngettext("%(count)s live claim", "%(count)s live claims", listing.live)
    text = said % {"count": words.number(listing.live)}
    if listing.kept:
        said = ngettext("%(count)s kept stopped", "%(count)s kept stopped", listing.kept)
        text += ", " + said % {"count": words.number(listing.kept)}
    if listing.query.search or listing.query.group or listing.query.state or listing.query.host:
        said = ngettext("%(count)s matches", "%(count)s match", listing.total)
        text += ", " + said % {"count": words.number(listing.total)}
    if listing.report.unanswered:
        text += ", " + _("as far as the stores answered")
    return text

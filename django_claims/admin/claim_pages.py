"""Live claims: the list, its rows as JSON, and the page of one claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_claims import conf
from django_claims.admin import keys, logs, stores, words
from django_claims.admin.act_pages import ActPages
from django_claims.admin.acts import ACTS, Act
from django_claims.admin.forms import form_for
from django_claims.admin.listing import PER_PAGE, Listing, Query, browse
from django_claims.admin.rows import Row
from django_claims.admin.tables import columns, filter_choices, page_links, summary
from django_claims.cli.words import finite
from django_claims.clock import iso, wall
from django_claims.exceptions import InvalidClaim
from django_claims.handler import claim_backends
from django_claims.names import checked
from django_claims.stop_flags import stop_flag

INTERVALS = (5, 15, 60)


class LiveClaimAdmin(ActPages):
    """
    Who holds what now, on any AdminSite.

    To change who may do what to which claim, subclass it, override `can_touch()`, and
    register that.
    """

    list_template = "admin/django_claims/list.html"
    claim_template = "admin/django_claims/claim.html"

    def get_urls(self) -> list[URLPattern]:
        def page(route: str, view: Any, name: str) -> URLPattern:
            found: URLPattern = path(route, self.admin_site.admin_view(view), name=f"django_claims_liveclaim_{name}")
            return found

        return [
            page("", self.changelist_view, "changelist"),
            page("rows/", self.rows_view, "rows"),
            page("act/", self.act_view, "act"),
            page("<path:object_id>/change/", self.change_view, "change"),
            page("<path:object_id>/history/", self.change_view, "history"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        context = {**self._page_context(request), **self._list_context(request), **(extra_context or {})}
        return TemplateResponse(request, self.list_template, context)

    def rows_view(self, request: HttpRequest) -> HttpResponse:
        """Return what the list, or with `claim` the page of one claim, shows now."""
        if "claim" in request.GET:
            context = {**self._page_context(request), **self._claim_context(request, request.GET["claim"])}
            html = render_to_string("admin/django_claims/_facts.html", context, request)
            row: Row = context["row"]
            said = {"said": context["said"], "read": context["read"], "follows": row.is_asked}
            return JsonResponse({"claim": finite(row.as_dict()), "html": html, **said})
        context = {**self._page_context(request), **self._list_context(request)}
        listing: Listing = context["listing"]
        parts = {part: render_to_string(f"admin/django_claims/_{part}.html", context, request)
                 for part in ("rows", "notices", "followed", "empty")}  # fmt: skip
        return JsonResponse(
            {
                "leases": [finite(row.as_dict()) for row in listing.rows],
                "total": listing.total,
                "page": listing.page,
                "per_page": PER_PAGE,
                "complete": listing.complete,
                "read_at": iso(context["read_at"]),
                "summary": context["summary"],
                "said": context["said"],
                "read": context["read"],
                "follows": any(row.lease is not None for row in listing.followed),
                **parts,
            }
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        context = {
            **self._page_context(request),
            **self._claim_context(request, unquote(object_id)),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.claim_template, context)

    def _page_context(self, request: HttpRequest) -> dict[str, Any]:
        if not self.has_view_permission(request):
            raise PermissionDenied
        request.current_app = self.admin_site.name
        now = wall()
        return {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "is_on": conf.enabled(),
            "is_read_only": conf.admin_read_only(),
            "read_at": now,
            "read": _("read at %(time)s") % {"time": f"{words.moment(now)} ({words.zone()})"},
            "intervals": INTERVALS,
            "list_url": self.page_url("changelist"),
            "act_url": self.page_url("act"),
            "rows_url": self.page_url("rows"),
        }

    def _list_context(self, request: HttpRequest) -> dict[str, Any]:
        query = Query.read(request.GET, request.GET.getlist("run"))
        listing = browse(query)
        acts = [act for act in ACTS.values() if self.may(request, act.key)] if conf.enabled() else []
        buttons = [act for act in acts if act.key in ("stop", "clear_stop")]
        back = request.GET.copy()
        back.pop("run", None)
        url = self.claim_urls()
        listing.rows = [replace(self._with_acts(request, row, buttons), url=url(row.key)) for row in listing.rows]
        heads = columns(query, back)
        return {
            "title": capfirst(self.model._meta.verbose_name_plural),
            "listing": listing,
            "notices": listing.report.notices,
            "query": query,
            "summary": summary(listing),
            "said": "; ".join(f"{words.short(row.name)}: {row.state_name}" for row in listing.followed),
            "columns": heads,
            **{f"label_{column['key']}": column["label"] for column in heads},
            "pages": page_links(listing.paginator, listing.page, back),
            "choices": filter_choices(query, listing),
            "acts": acts,
            "described": stores.described() if conf.enabled() and not listing.rows else [],
            "back": back.urlencode(),
        }

    def _with_acts(self, request: HttpRequest, row: Row, acts: list[Act]) -> Row:
        """Give a row its buttons, of the acts that this user may do at all."""
        wanted = (
            act
            for act in acts
            if _makes_sense(act.key, row) and self.can_touch(request, act.key, alias=row.alias, name=row.name)
        )
        return replace(row, acts=tuple(wanted))

    def _claim_context(self, request: HttpRequest, key: str) -> dict[str, Any]:
        report = stores.Report()
        if not conf.enabled():
            report.notices.append(stores.off())
            parts = None
        else:
            parts = keys.find(key, lambda alias: stores.known_names(alias, report))
            if parts is None and keys.split(key) is None:
                raise Http404
        row = self._look(*parts, report) if parts else Row("", key)
        if parts:
            row = self._with_acts(request, row, [act for act in ACTS.values() if self.may(request, act.key)])
        history = logs.of(row.key if parts else key)
        return {
            "title": words.short(row.name) if parts or not history else history[0].object_repr,
            "crumb": capfirst(self.model._meta.verbose_name_plural),
            "crumb_url": self.page_url("changelist"),
            "subtitle": capfirst(self.model._meta.verbose_name),
            "row": row,
            "is_over": row.state == "ended" and not report.unanswered,
            "cannot_tell": bool(report.unanswered),
            "said": "" if report.unanswered else row.state_name,
            "notices": report.notices,
            "facts": _facts(row),
            "forms": [(act, form_for(act.key)) for act in row.acts],
            "asked_at": iso(row.flag.requested_at) if row.flag else "",
            "history": history,
        }

    def _look(self, alias: str, name: str, report: stores.Report) -> Row:
        try:
            checked(name)
        except InvalidClaim as error:
            raise Http404 from error
        lease = flag = None
        with report.asking(alias):
            lease = claim_backends[alias].lease(name)
            flag = lease.stop_flag if lease is not None else None
            if flag is None:
                flag = stop_flag(name, using=alias)
                if flag is not None and not flag.keep:
                    flag = None  # left over from a run that has just ended
            if claim_backends[alias].is_process_local:
                report.notices += stores.limits(claim_backends[alias], True)
        return Row(alias, name, lease, flag)


def _makes_sense(act: str, row: Row) -> bool:
    if act == "stop":
        return row.is_stoppable and row.flag is None
    if act == "keep_stopped":
        return row.flag is None or not row.flag.keep
    if act == "clear_stop":
        return row.flag is not None
    return row.lease is not None


def _facts(row: Row) -> list[tuple[str, str]]:
    """Return all that is known of a claim, in words."""
    facts = [(_("Name"), row.name), (_("Store"), row.alias)]  # not every skin shows the title
    lease, flag = row.lease, row.flag
    if lease is not None:
        if who := lease.holder:
            facts += [(_("Program"), who.label), (_("Host"), who.host), (_("Process"), str(who.pid))]
            facts += [(_("Process started"), words.moment(who.started_at)), (_("Node"), who.node)]
            facts += [(_("Task"), who.task_id)]
        if lease.acquired_at:
            said = {"duration": row.held_for, "time": words.moment(lease.acquired_at)}
            facts.append((_("Held for"), _("%(duration)s, since %(time)s") % said))
        if lease.renewed_at:
            said = {"ago": row.beat, "every": words.duration(lease.heartbeat)}
            facts.append((_("Last heartbeat"), _("%(ago)s, expected every %(every)s") % said))
        if lease.expires_at:
            said = {"left": row.left, "ttl": words.duration(lease.ttl)}
            facts.append((_("Time left"), _("%(left)s of %(ttl)s, unless it is renewed") % said))
        facts.append((_("Run number (fence)"), row.fence))
        if lease.progress and lease.progress.at:
            facts.append((_("Progress reported"), words.since(lease.progress.at)))
    if flag is not None:
        facts.append((_("Stop asked"), words.since(flag.requested_at) if flag.requested_at else _("yes")))
        facts += [(_("Stop asked by"), flag.by), (_("Reason for the stop"), flag.reason)]
        seen = words.since(flag.seen_at) if flag.seen_at else _("not yet")
        facts += [(_("Stop seen by the job"), seen), (_("Stop lasts"), words.until(flag))]
    return [(label, words.plain(text)) for label, text in facts if text]

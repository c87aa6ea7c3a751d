"""Stop flags: what was asked to stop, what is kept stopped, by whom and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.text import capfirst

from django_claims import conf
from django_claims.admin import stores, words
from django_claims.admin.keys import key_of
from django_claims.admin.listing import PER_PAGE
from django_claims.admin.rights import ClaimRights
from django_claims.admin.tables import page_links
from django_claims.clock import iso
from django_claims.leases import StopFlag
from django_claims.models import LiveClaim


@dataclass(frozen=True)
class FlagRow:
    """One stop flag on the page."""

    flag: StopFlag
    url: str
    may_clear: bool

    @property
    def name(self) -> str:
        return words.plain(self.flag.name)

    @property
    def by(self) -> str:
        return words.plain(self.flag.by)

    @property
    def reason(self) -> str:
        return words.plain(self.flag.reason)

    @property
    def fence(self) -> str:
        return "" if self.flag.fence is None else str(self.flag.fence)

    @property
    def asked_at(self) -> str:
        """What the Clear button sends, so that it does not clear a later one."""
        return iso(self.flag.requested_at) or ""

    @property
    def asked(self) -> str:
        return words.since(self.flag.requested_at) if self.flag.requested_at else ""

    @property
    def seen(self) -> str:
        return words.since(self.flag.seen_at) if self.flag.seen_at else ""

    @property
    def until(self) -> str:
        return words.until(self.flag)


class StopFlagAdmin(ClaimRights):
    """All stop flags, on any AdminSite. Its buttons obey the rules of that site's LiveClaimAdmin."""

    template = "admin/django_claims/flags.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="django_claims_stoprequestrow_changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        request.current_app = self.admin_site.name
        claims: Any = self.admin_site._registry.get(LiveClaim)
        report = stores.Report()
        flags: list[StopFlag] = []
        if conf.enabled():
            for alias in conf.aliases():
                flags += self._flags(alias, report)
        else:
            report.notices.append(stores.off())
        paginator = Paginator(flags, PER_PAGE)
        page = paginator.get_page(request.GET.get("p"))
        rows = [self._row(request, claims, flag) for flag in page]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": capfirst(self.model._meta.verbose_name_plural),
            "rows": rows,
            "pages": page_links(paginator, page.number, request.GET.copy()),
            "notices": report.notices,
            "act_url": claims.page_url("act") if claims is not None else "",
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.template, context)

    def _flags(self, alias: str, report: stores.Report) -> list[StopFlag]:
        """Return the flags of an alias, but for those whose run has just ended."""
        found = stores.contents(alias, report)
        of_runs = [flag.name for flag in found.flags.values() if not flag.keep]
        fences: dict[str, int] = {}
        with report.asking(alias):
            fences = {name: lease.fence for name, lease in found.leases_of(of_runs).items()}
        return [flag for flag in found.flags.values() if flag.keep or fences.get(flag.name) == flag.fence]

    def _row(self, request: HttpRequest, claims: Any, flag: StopFlag) -> FlagRow:
        if claims is None:
            return FlagRow(flag, "", False)
        return FlagRow(
            flag,
            claims.page_url("change", quote(key_of(flag.alias, flag.name))),
            claims.allows(request, "clear_stop", flag.alias, flag.name),
        )

"""The view behind every button: asks for the right again, confirms, acts, says what came of it, and notes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from urllib.parse import quote as url_quote

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_claims import conf
from django_claims.admin import logs, stores, words
from django_claims.admin.acts import ACTS, Aim, Outcome, perform
from django_claims.admin.forms import ReasonForm, form_for, read_aims
from django_claims.admin.keys import key_of
from django_claims.admin.rights import ClaimRights
from django_claims.admin.rows import Row
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting, UnsupportedFeature
from django_claims.handler import claim_backends
from django_claims.leases import Lease, StopFlag

_PLACE = "0key0"

LONGEST = 1800
"""Letters of an address: of a selection, as many runs are followed after a stop as it takes."""


class ActPages(ClaimRights):
    """What LiveClaimAdmin does by POST."""

    def page_url(self, page: str, *args: str) -> str:
        """Return the address of one of our pages on this site."""
        return reverse(f"admin:django_claims_liveclaim_{page}", args=args, current_app=self.admin_site.name)

    def claim_urls(self) -> Callable[[str], str]:
        """Return what gives the address of a claim's page for its key: a hundred rows ask, and reverse() is slow."""
        before, _mark, after = self.page_url("change", _PLACE).rpartition(_PLACE)
        return lambda key: before + url_quote(quote(key), safe="/~:@!$&'()*+,;=") + after

    def act_view(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        act = request.POST.get("act", "")
        if act not in ACTS:
            raise BadRequest("There is no such act.")
        if not self.may(request, act):
            raise PermissionDenied
        if not conf.enabled():
            messages.warning(request, stores.off().text)
            return self._back(request)
        aims = read_aims(request.POST)
        if "name" not in request.POST:
            aims = [aim for aim in aims if _concerns(act, aim)]
        elif act in ("stop", "force_release") and aims[0].fence is None:
            raise BadRequest("Which run? The fence is missing.")
        if not aims:
            messages.warning(request, _("Nothing was selected, or nothing that this can be done to."))
            return self._back(request)
        allowed = [aim for aim in aims if self.can_touch(request, act, alias=aim.alias, name=aim.name)]
        if not allowed:
            raise PermissionDenied
        form = form_for(act, request.POST)
        is_confirmed = request.POST.get("confirm") == "yes" or (len(aims) == 1 and "name" in request.POST)
        if act == "force_release":
            is_confirmed = request.POST.get("confirm") == "yes"
        if act in ("force_release", "keep_stopped") and not (is_confirmed and form.is_valid()):
            return self._confirm(request, act, allowed, form)
        form.is_valid()
        return self._act(request, act, allowed, form, denied=len(aims) - len(allowed))

    def _confirm(self, request: HttpRequest, act: str, aims: list[Aim], form: ReasonForm) -> HttpResponse:
        """Ask once more, with what is known of the runs now."""
        report = stores.Report()
        leases: dict[tuple[str, str], Lease] = {}
        flags: dict[tuple[str, str], StopFlag] = {}
        for alias in {aim.alias for aim in aims}:
            with report.asking(alias):
                backend = claim_backends[alias]
                names = [aim.name for aim in aims if aim.alias == alias]
                leases.update({(alias, lease.name): lease for lease in backend.leases_of(names)})
                flags.update({(alias, flag.name): flag for flag in backend.flags() if flag.keep})
        rows = []
        for aim in aims:
            where = (aim.alias, aim.name)
            lease = leases.get(where)
            if aim.fence is None or (lease is not None and lease.fence == aim.fence):
                rows.append(Row(*where, lease, lease.stop_flag if lease else flags.get(where)))
        if not rows:
            if report.notices:
                self._cannot_tell(request, report.notices[0].text)
            else:
                self._say(request, act, aims, Counter({Outcome.ENDED: len(aims)}))
            return self._back(request)
        if request.POST.get("confirm") != "yes" and "name" not in request.POST:
            form = form_for(act)  # no complaints about what was not asked for yet
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": ACTS[act].label,
            "crumb": capfirst(self.model._meta.verbose_name_plural),
            "crumb_url": self.page_url("changelist"),
            "act": ACTS[act],
            "rows": rows,
            "notices": report.notices,
            "form": form,
            "back": request.POST.get("back", ""),
            "from": request.POST.get("from", ""),
            "act_url": self.page_url("act"),
            "list_url": self._list_url(request.POST.get("back", "")),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_claims/confirm.html", context)

    def _act(self, request: HttpRequest, act: str, aims: list[Aim], form: ReasonForm, denied: int) -> HttpResponse:
        reason = form.cleaned_data.get("reason", "")
        until = form.cleaned_data.get("until")
        outcomes: Counter[Outcome] = Counter()
        followed = []
        by = request.user.get_username()
        for number, aim in enumerate(aims):
            try:
                outcome = perform(act, aim, by=by, reason=reason, until=until)
            except (BackendUnavailable, UnsupportedFeature, InvalidClaimsSetting) as error:
                self._cannot_tell(request, str(error), left=len(aims) - number)
                break
            outcomes[outcome] += 1
            if outcome is Outcome.DONE:
                if not logs.write(request, act, aim, reason=reason, until=until):
                    messages.warning(request, _("The admin log could not be written."))
                if act != "clear_stop" and aim.fence is not None:
                    followed.append(f"{aim.fence} {key_of(aim.alias, aim.name)}")
        self._say(request, act, aims, outcomes)
        if denied:
            text = ngettext(
                "%(count)d claim was left alone: you may not do this to it.",
                "%(count)d claims were left alone: you may not do this to them.",
                denied,
            )
            messages.warning(request, text % {"count": denied})
        if outcomes[Outcome.DONE] and request.POST.get("from") == "claim" and self.has_view_permission(request):
            return HttpResponseRedirect(self.page_url("change", quote(key_of(aims[0].alias, aims[0].name))))
        return self._back(request, followed)

    def _say(self, request: HttpRequest, act: str, aims: list[Aim], outcomes: Counter[Outcome]) -> None:
        if len(aims) == 1:
            for outcome in outcomes:
                level = messages.SUCCESS if outcome is Outcome.DONE else messages.WARNING
                self.message_user(request, _said(act, outcome, aims[0].name), level)
            return
        for outcome, count in outcomes.items():
            level = messages.SUCCESS if outcome is Outcome.DONE else messages.WARNING
            self.message_user(request, _said_of_many(act, outcome, count), level)

    def _cannot_tell(self, request: HttpRequest, detail: str, left: int = 0) -> None:
        text = _("The store gave no answer, so nobody can tell whether it was done (%(detail)s).") % {"detail": detail}
        if left > 1:
            text += " " + ngettext(
                "%(count)d of the selected was not tried.", "%(count)d of the selected were not tried.", left - 1
            ) % {"count": left - 1}
        self.message_user(request, text, messages.ERROR)

    def _back(self, request: HttpRequest, followed: Sequence[str] = ()) -> HttpResponse:
        if not self.has_view_permission(request):
            return HttpResponseRedirect(reverse("admin:index", current_app=self.admin_site.name))
        if request.POST.get("from") == "flags":
            url = reverse("admin:django_claims_stoprequestrow_changelist", current_app=self.admin_site.name)
            return HttpResponseRedirect(url)
        return HttpResponseRedirect(self._list_url(request.POST.get("back", ""), followed))

    def _list_url(self, back: str, followed: Sequence[str] = ()) -> str:
        """Return the list as it was: only its query is taken from the form, never a place to go to."""
        query = QueryDict(back[:LONGEST], mutable=True)
        query.setlist("run", [])
        for run in followed:
            if len(query.urlencode()) + len(url_quote(run)) < LONGEST:
                query.appendlist("run", run)
        return self.page_url("changelist") + (f"?{query.urlencode()}" if query.urlencode() else "")


def _concerns(act: str, aim: Aim) -> bool:
    """Say whether an act can be done to one of a selection: not all of them run, or can be read."""
    return bool(aim.fence) if act == "stop" else aim.fence is not None if act == "force_release" else True


def _named(name: str) -> SafeString:
    return format_html("<bdi>{}</bdi>", words.short(name))


def _said(act: str, outcome: Outcome, name: str) -> SafeString:
    if outcome is Outcome.ENDED:
        text = _("“{name}”: that run has already ended. Nothing was changed.")
    elif outcome is Outcome.CHANGED:
        text = _("“{name}”: another stop has been asked for meanwhile. Nothing was changed.")
    elif outcome is Outcome.NOTHING:
        text = _("“{name}” has no stop any more. Nothing was changed.")
    else:
        text = {
            "stop": _("“{name}” was asked to stop. It ends when the job next checks for a stop."),
            "keep_stopped": _(
                "“{name}” is kept stopped: if it runs, that run was asked to end, and no other may begin."
            ),
            "clear_stop": _("The stop of “{name}” was cleared: it may run."),
            "force_release": _(
                "“{name}” was force-released. Its holder is told if it still runs; "
                "until it notices, two may run at the same time."
            ),
        }[act]
    return format_html(text, name=_named(name))


def _said_of_many(act: str, outcome: Outcome, count: int) -> str:
    if outcome is Outcome.ENDED:
        text = ngettext(
            "%(count)d run has already ended, and was not changed.",
            "%(count)d runs have already ended, and were not changed.",
            count,
        )
    elif outcome is not Outcome.DONE:
        text = ngettext("%(count)d claim has no stop any more.", "%(count)d claims have no stop any more.", count)
    elif act == "stop":
        text = ngettext("%(count)d run was asked to stop.", "%(count)d runs were asked to stop.", count)
    elif act == "keep_stopped":
        text = ngettext("%(count)d claim is kept stopped.", "%(count)d claims are kept stopped.", count)
    elif act == "clear_stop":
        text = ngettext("%(count)d stop was cleared.", "%(count)d stops were cleared.", count)
    else:
        text = ngettext("%(count)d run was force-released.", "%(count)d runs were force-released.", count)
    return text % {"count": count}

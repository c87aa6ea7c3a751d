"""What the acts take from a form: which claims, which runs of them, why, and until when."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import BadRequest
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_claims import conf
from django_claims.admin.acts import Aim
from django_claims.admin.keys import split
from django_claims.clock import wall
from django_claims.exceptions import InvalidClaim
from django_claims.names import REASON_LENGTH, checked

MOST_FENCE = 2**63


class ReasonForm(forms.Form):
    """Why; those who are stopped or refused read it."""

    reason = forms.CharField(
        label=_("Reason"), required=False, widget=forms.TextInput({"maxlength": REASON_LENGTH, "dir": "auto"})
    )


class KeepForm(ReasonForm):
    """Why, and for how long."""

    until = forms.DateTimeField(
        label=_("Until"),
        required=False,
        widget=forms.DateTimeInput({"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["until"].help_text = _(
            "By the clock of %(zone)s. Leave it empty to keep it stopped until somebody clears the stop."
        ) % {"zone": timezone.get_current_timezone_name()}

    def clean_until(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["until"]
        now = wall()
        if until is not None and timezone.is_naive(until):  # USE_TZ = False
            until = timezone.make_aware(until)
        if until is not None and not now < until < now + timedelta(days=36500):
            raise forms.ValidationError(_("Choose a time in the future, or leave it empty."))
        return until


def form_for(act: str, data: Any = None) -> ReasonForm:
    """Return the form of an act. `id_for_label` differs, since a page can hold several."""
    kind = KeepForm if act == "keep_stopped" else ReasonForm
    return kind(data, auto_id=f"claims-{act}-%s")


def read_aims(posted: QueryDict) -> list[Aim]:
    """Return what a form points at: one claim by its fields, or several by `run`. Raises BadRequest."""
    if "name" in posted:
        fence = posted.get("fence", "")
        return [_aim(posted.get("alias", conf.DEFAULT_ALIAS), str(posted["name"]), fence, posted.get("asked_at", ""))]
    aims = []
    for run in posted.getlist("run"):
        fence, _blank, key = run.partition(" ")
        alias, name = split(key) or ("", "")
        aims.append(_aim(alias, name, "" if fence == "-" else fence))
    return list(dict.fromkeys(aims))


def _aim(alias: str, name: str, fence: str, asked_at: str = "") -> Aim:
    if split(f"{alias}:") != (alias, ""):
        raise BadRequest("There is no such alias.")
    try:
        checked(name)
    except InvalidClaim as error:
        raise BadRequest("That is no claim's name.") from error
    if not fence:
        return Aim(alias, name, asked_at=asked_at)
    if not (fence.isascii() and fence.isdigit() and len(fence) < 20 and int(fence) < MOST_FENCE):
        raise BadRequest("That is no fence.")
    return Aim(alias, name, int(fence), asked_at)

"""The admin's own history: each act with its user, its claim and its reason."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, transaction
from django.http import HttpRequest
from django.utils import translation
from django.utils.translation import gettext as _

from django_claims.admin.keys import key_of
from django_claims.cli.words import clean
from django_claims.logs import get_logger
from django_claims.models import LiveClaim

logger = get_logger(__name__)

MOST = 20


def write(request: HttpRequest, act: str, *, alias: str, name: str, fence: int | None, reason: str, until: str) -> bool:
    """
    Note an act that was done. Return False, and log it, where the database would not have it.

    In the site's language, whoever acted: others read it.
    """
    with translation.override(settings.LANGUAGE_CODE):
        message = _sentence(act, fence, until)
        if reason:
            message += " " + _("Reason: %(reason)s") % {"reason": clean(reason)}
    claim = LiveClaim(key=key_of(alias, name), alias=alias, name=clean(name))
    flag = DELETION if act == "force_release" else CHANGE
    user: Any = request.user.pk
    try:
        with transaction.atomic():  # or a failure would spoil the request's own transaction
            LogEntry.objects.log_actions(user, [claim], flag, message, single_object=True)
    except DatabaseError:
        logger.exception("An act could not be noted in the admin log act=%s name=%s alias=%s", act, clean(name), alias)
        return False
    return True


def _sentence(act: str, fence: int | None, until: str) -> str:
    said = {"fence": str(fence), "until": until}
    if act == "stop":
        return _("Asked the run with fence %(fence)s to stop.") % said
    if act == "keep_stopped":
        return _("Stopped, and kept stopped %(until)s.") % said
    if act == "clear_stop":
        return _("Cleared the stop.")
    return _("Force-released the run with fence %(fence)s.") % said


def of(key: str) -> list[LogEntry]:
    """Return the newest entries about a claim."""
    kind = ContentType.objects.get_for_model(LiveClaim, for_concrete_model=False)
    entries = LogEntry.objects.filter(content_type=kind, object_id=key).select_related("user")
    return list(entries.order_by("-action_time")[:MOST])

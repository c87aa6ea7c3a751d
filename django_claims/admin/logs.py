"""The admin's own history: each act with its user, its claim and its reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, router, transaction
from django.http import HttpRequest
from django.utils import formats, timezone, translation
from django.utils.translation import gettext as _

from django_claims.admin.acts import Aim
from django_claims.admin.keys import key_of
from django_claims.cli.words import clean
from django_claims.logs import get_logger
from django_claims.models import LiveClaim
from django_claims.names import REASON_LENGTH, cut

logger = get_logger(__name__)

MOST = 20


def write(request: HttpRequest, act: str, aim: Aim, *, reason: str, until: datetime | None) -> bool:
    """
    Note an act that was done. Return False, and log it, where the database would not have it.

    In the site's language, whoever acted: others read it.
    """
    name = clean(aim.name)
    with translation.override(settings.LANGUAGE_CODE):
        message = _sentence(act, aim, until)
        if reason:
            message += " " + _("Reason: %(reason)s") % {"reason": clean(cut(reason, REASON_LENGTH))}
    claim = LiveClaim(key=key_of(aim.alias, aim.name), alias=aim.alias, name=name)
    flag = DELETION if act == "force_release" else CHANGE
    user: Any = request.user.pk
    try:
        with transaction.atomic(using=router.db_for_write(LogEntry)):  # or a failure would spoil the request's own
            LogEntry.objects.log_actions(user, [claim], flag, message, single_object=True)
    except DatabaseError:
        logger.exception("An act could not be noted in the admin log act=%s name=%s alias=%s", act, name, aim.alias)
        return False
    return True


def _sentence(act: str, aim: Aim, until: datetime | None) -> str:
    if act == "stop":
        return _("Asked the run with fence %(fence)s to stop.") % {"fence": str(aim.fence)}
    if act == "keep_stopped":
        if until is None:
            return _("Stopped, and kept stopped until cleared.")
        local = timezone.localtime(until)
        time = formats.date_format(local, "DATETIME_FORMAT") + " " + (local.tzname() or "")
        return _("Stopped, and kept stopped until %(time)s.") % {"time": time.strip()}
    if act == "clear_stop":
        return _("Cleared the stop.")
    return _("Force-released the run with fence %(fence)s.") % {"fence": str(aim.fence)}


def of(key: str) -> list[LogEntry]:
    """Return the newest entries about a claim."""
    kind = ContentType.objects.get_for_model(LiveClaim, for_concrete_model=False)
    entries = LogEntry.objects.filter(content_type=kind, object_id=key).select_related("user")
    return list(entries.order_by("-action_time")[:MOST])

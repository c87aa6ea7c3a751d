"""Who may do what: four permissions, one setting, and a rule of the site's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from django_claims import conf

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

PERMISSIONS = {
    "view": "view_claim",
    "stop": "stop_claim",
    "keep_stopped": "stop_claim",
    "clear_stop": "clear_stop_claim",
    "force_release": "force_release_claim",
}


class ClaimRights(_ModelAdmin):
    """What both pages share. Nothing is added, changed or deleted as a row of a table."""

    def can_touch(self, request: HttpRequest, act: str, *, alias: str, name: str) -> bool:
        """
        Say whether this user may do this to this claim: override it for a rule of your own.

        Asked besides the permission, for each button and again by each act. `act` is 'stop',
        'keep_stopped', 'clear_stop' or 'force_release'. Who may view sees all claims: the rule
        hides buttons, not rows.
        """
        return True

    def may(self, request: HttpRequest, act: str) -> bool:
        """Say whether this user may do this to claims at all."""
        if act != "view" and conf.admin_read_only():
            return False
        user: Any = request.user  # of a class of the site's own, or anonymous
        return bool(user.has_perm(f"django_claims.{PERMISSIONS[act]}"))

    def allows(self, request: HttpRequest, act: str, alias: str, name: str) -> bool:
        """Say whether this user may do this to this claim now."""
        return self.may(request, act) and self.can_touch(request, act, alias=alias, name=name)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, "view")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

"""The admin pages, on Django's own site. For another site, register the same classes there."""

from django.contrib import admin

from django_claims.admin.claim_pages import LiveClaimAdmin
from django_claims.admin.flag_pages import StopFlagAdmin
from django_claims.models import LiveClaim, StopRequestRow

__all__ = ["LiveClaimAdmin", "StopFlagAdmin"]

admin.site.register(LiveClaim, LiveClaimAdmin)
admin.site.register(StopRequestRow, StopFlagAdmin)

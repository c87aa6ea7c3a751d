"""Django's own admin site, another one, one with a rule of its own, and one with half of the pages."""

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.urls import path

from django_claims.admin import LiveClaimAdmin, StopFlagAdmin
from django_claims.models import LiveClaim, StopRequestRow


class CarefulAdmin(LiveClaimAdmin):
    """Billing is nobody's to touch, and force nobody's to use."""

    def can_touch(self, request, act, *, alias, name):
        return not name.startswith("billing:") and act != "force_release"


other, careful, flags = (AdminSite(name=name) for name in ("other", "careful", "flags"))
for site, claims_admin in ((other, LiveClaimAdmin), (careful, CarefulAdmin), (flags, None)):
    site.register(StopRequestRow, StopFlagAdmin)
    if claims_admin:
        site.register(LiveClaim, claims_admin)

urlpatterns = [
    path("admin/", admin.site.urls),
    *(path(f"{site.name}/", site.urls) for site in (other, careful, flags)),
]

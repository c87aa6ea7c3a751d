"""
The table of leases: one row a name that was ever claimed, until a day after its last end.

A row outlives its lease, since it keeps the last fence. There is no index on what each acquire
and release writes: it would cost more than all the rest, and only listings would use it. Times
are microseconds after 1970 by the database's clock, so that no time zone and no driver comes
between two processes.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _


class LeaseRow(models.Model):
    """One name: who has it until when, and who asked it to stop. Not for use by hand."""

    # Of the name: case, accents and length then mean the same to every database.
    digest = models.CharField(primary_key=True, max_length=64)
    format = models.SmallIntegerField()
    name = models.CharField(max_length=500)
    token = models.CharField(max_length=64)  # '' when nobody has it
    fence = models.BigIntegerField()
    kind = models.CharField(max_length=1)
    holder = models.TextField()
    progress = models.TextField()
    ttl_ms = models.BigIntegerField()
    heartbeat_ms = models.BigIntegerField()
    acquired_us = models.BigIntegerField()
    renewed_us = models.BigIntegerField()
    expires_us = models.BigIntegerField()
    flag_kind = models.CharField(max_length=1)  # '' none, 'r' of the run, 'k' kept
    flag_ends_us = models.BigIntegerField()  # of a kept one; 0 is never
    flag_asked_us = models.BigIntegerField()
    flag_seen_us = models.BigIntegerField()
    flag_words = models.TextField()
    forced_fence = models.BigIntegerField()  # the last run that an operator ended: word for its holder
    forced_until_us = models.BigIntegerField()
    news_until_us = models.BigIntegerField(db_index=True)  # how long holders should look at this row

    class Meta:
        app_label = "django_claims_database"  # said here, so that the backend can say what to install
        db_table = "django_claims_lease"
        verbose_name = _("lease")
        verbose_name_plural = _("leases")

    def __str__(self) -> str:
        return self.name

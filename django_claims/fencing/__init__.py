"""
Writes that a later holder's write turns away.

A holder can be paused between its last look and its write, for longer than any lease lives.
The row itself then has to know better:

    holder, fence 7          next holder, fence 9       the row
    reads                                               fence 7
    (paused beyond its TTL)
                             acquires, writes           fence 9
    UPDATE … WHERE fence <= 7                           0 rows: StaleFence

Limit: it holds among those who write through this module. A plain `update()` is not asked for
a fence, and a plain `save()` neither, though it leaves the stored fence as it is.
"""

from django_claims.fencing.fields import FenceField
from django_claims.fencing.reads import afenced_get, afenced_read, fenced_get, fenced_read
from django_claims.fencing.writes import afenced_save, afenced_update, fenced_save, fenced_update

__all__ = [
    "FenceField",
    "fenced_update",
    "fenced_save",
    "fenced_get",
    "fenced_read",
    "afenced_update",
    "afenced_save",
    "afenced_get",
    "afenced_read",
]

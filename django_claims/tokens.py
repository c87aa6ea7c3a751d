"""
Secrets, as text and bytes that are not shown.

Error pages and reports show the variables of each call that an error went through. An owner
token is a password, and whoever sees a report is not to have it.
"""

from __future__ import annotations


class Token(str):
    """An owner's token, or what stands in its place."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


class Packed(bytes):
    """A request as it goes over the wire, its secrets among the rest."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"

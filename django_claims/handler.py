"""The backends by alias: `claim_backends["default"]`. One object per thread and asyncio task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_claims import conf
from django_claims.backends.base import BaseClaimBackend
from django_claims.exceptions import InvalidClaimsSetting


class ClaimBackendHandler:
    """
    Makes backends when they are asked for, and forgets them when the settings change.

    Like Django's own handlers, but for CLAIMS = None: there is then no alias at all.
    """

    def __init__(self) -> None:
        # By context, as asgiref's Local keeps Django's caches, at a tenth of its cost: each claim asks
        # three times. Never changed in place, since a task's context begins as a copy of another's.
        self._backends: ContextVar[dict[str, BaseClaimBackend]] = ContextVar("django_claims_backends")
        self.reset()

    def __getitem__(self, alias: str) -> BaseClaimBackend:
        known = self._backends.get(self._none)
        backend = known.get(alias)
        if backend is None or backend.made_for is not self._none or not backend.is_current():
            backend = self.create(conf.alias_settings(alias))
            backend.made_for = self._none
            self._backends.set({**known, alias: backend})
        return backend

    def __iter__(self) -> Any:
        return iter(conf.aliases())

    def all(self) -> list[BaseClaimBackend]:
        """Return the backend of every alias."""
        return [self[alias] for alias in conf.aliases()]

    def create(self, settings: conf.AliasSettings) -> BaseClaimBackend:
        """Return a new backend. Raises InvalidClaimsSetting if the settings cannot be used."""
        where = f"CLAIMS[{settings.alias!r}]['BACKEND']"
        try:
            cls = import_string(settings.backend)
        except ImportError as error:
            shipped = ", ".join((conf.REDIS, conf.CACHE, conf.DATABASE, conf.FILE, conf.MEMORY))
            raise InvalidClaimsSetting(
                f"{where} cannot be imported: {settings.backend!r} ({error}). Shipped: {shipped}."
            ) from error
        if not (isinstance(cls, type) and issubclass(cls, BaseClaimBackend)):
            raise InvalidClaimsSetting(f"{where} is not a claim backend: {settings.backend!r}.")
        return cls.build(settings)

    def reset(self) -> None:
        """Forget all backends, so that the next use reads the settings anew."""
        self._none: dict[str, BaseClaimBackend] = {}  # another object each time: what was made before is of no use


claim_backends = ClaimBackendHandler()


def _settings_changed(*, setting: str, **kwargs: object) -> None:
    if setting.startswith("CLAIMS") or setting in ("CACHES", "DATABASES", "INSTALLED_APPS"):
        claim_backends.reset()


setting_changed.connect(_settings_changed)

"""Backends in memory that pass for others."""

from tests.helpers import FlakyBackend


class SharedBackend(FlakyBackend):
    """As if other processes saw it too."""

    is_process_local = False


class ForgetfulBackend(SharedBackend):
    """Cannot list everything."""

    supports_complete_listing = False


class LeakyBackend(SharedBackend):
    """Lets everybody in."""

    def acquire(self, requests):
        for request in requests:
            self.force_release(request.name, getattr(self.lease(request.name), "fence", 0))
        return super().acquire(requests)

"""What a type checker should find wrong: each line says what, and mypy tells if it finds nothing there."""

from django.core.management.base import BaseCommand

from django_claims import claim, force_release, hold, request_stop, single_instance
from django_claims.test import override_claims


@single_instance
def plain(number: int) -> str:
    return str(number)


def wrong() -> None:
    claim("x", "key")  # type: ignore[call-arg]
    claim("x", ttl="3")  # type: ignore[arg-type]
    claim("x", on_lost="explode")  # type: ignore[arg-type]
    claim("x").acquire().release()  # type: ignore[union-attr]
    force_release("x")  # type: ignore[call-arg]
    request_stop(1)  # type: ignore[arg-type]
    hold("x", signal=3)  # type: ignore[arg-type]
    plain("1")  # type: ignore[arg-type]
    single_instance(on_refused="explode")  # type: ignore[call-overload]
    override_claims(clock="sun")  # type: ignore[call-overload]


@single_instance
class Command(BaseCommand):
    pass


Command().handle_all()  # type: ignore[attr-defined]

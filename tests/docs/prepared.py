"""What the pages take for granted: a shop, its rows, and what is called after a block has defined it."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class Rows(list):  # type: ignore[type-arg]
    """Rows, and whatever gives rows when it is called: `rows`, `rows()`, `rows(tenant)`."""

    def __call__(self, *args: Any) -> Rows:
        return self


def nothing(*args: Any, **kwargs: Any) -> None:
    """Work, as far as the pages are concerned."""


async def async_nothing(*args: Any) -> None:
    pass


async def async_rows():
    for row in (1, 2):
        yield row


def shop() -> dict[str, Any]:
    """Return what any page may use without saying so."""
    return {
        "rows": Rows([1, 2]),
        "batches": Rows([[1], [2]]),
        "supplier": SimpleNamespace(pk=7),
        "customers": Rows(["ann", "ben"]),
        **dict.fromkeys(
            ("work_on", "report_on", "run_import", "send_report", "log", "write", "store", "write_report", "load"),
            nothing,
        ),
    }


def of_async() -> dict[str, Any]:
    return {"rows": async_rows, "work_on": async_nothing}


def of_admin() -> dict[str, Any]:
    from django.contrib.admin import AdminSite

    return {"my_site": AdminSite("mine")}


def of_celery() -> dict[str, Any]:
    import celery

    app = celery.Celery("docs", set_as_current=False)
    app.conf.task_always_eager = True
    return {"orders_of": Rows([1]), "save": nothing, "Task": celery.Task, "app": app}


def of_commands() -> dict[str, Any]:
    from django.core.management.base import BaseCommand

    from django_claims import single_instance

    return {"BaseCommand": BaseCommand, "single_instance": single_instance}


def of_typed_commands() -> dict[str, Any]:
    import djclick
    from django_typer.management import TyperCommand

    from django_claims import current_hold

    return {"click": djclick, "TyperCommand": TyperCommand, "current_hold": current_hold}


def of_handing_over() -> dict[str, Any]:
    from django_claims import ClaimLost, claim

    def shared_task(body: Any) -> Any:
        return SimpleNamespace(delay=body)  # the queue, without a queue

    recipe = claim("feed")
    hold = recipe.acquire()
    assert hold is not None
    return {
        "claim": claim,
        "ClaimLost": ClaimLost,
        "JsonResponse": lambda data, status: SimpleNamespace(data=data, status=status),
        "shared_task": shared_task,
        "rows_of": Rows([1]),
        "os": SimpleNamespace(fork=lambda: 0),  # a child that is this process
        "recipe": recipe,
        "ticket": hold.hand_over(),
    }


def of_progress() -> dict[str, Any]:
    from django_claims import request_stop

    return {"download": Rows([1]), "next_row": lambda: request_stop("import:7")}


def of_resources() -> dict[str, Any]:
    return {"options": {"out": str(Path.cwd() / "report.csv")}}


def of_shutdown() -> dict[str, Any]:
    sys.modules.setdefault("uwsgi", types.ModuleType("uwsgi"))  # there is one inside of uWSGI only
    return {}


def of_claim() -> dict[str, Any]:
    from django_claims import claim

    return {"claim": claim}


MORE = {
    "admin.md": of_admin,
    "async.md": of_async,
    "celery.md": of_celery,
    "commands.md": of_commands,
    "handing-over.md": of_handing_over,
    "moving.md": of_claim,
    "progress-and-stops.md": of_progress,
    "resources.md": of_resources,
    "scheduling.md": of_commands,
    "shutdown.md": of_shutdown,
    "waiting.md": of_claim,
}

CALLS: dict[str, dict[str, tuple[Any, ...]]] = {
    "celery.md": {"import_orders": (7,)},
    "handing-over.md": {"start_import": (None, 7)},
    "moving.md": {"import_orders": (7,)},
}
"""What is called, with what, once a block has defined it."""

TEST_PREAMBLE = """
from django_claims import claim


def import_prices():
    with claim("import"):
        return "imported"
"""
"""What the tests on a page are written in: a module of a project that has imported these."""

"""The recipes of docs/monitoring.md, run as they stand there."""

import json
import logging
import logging.config
import re
import types
from pathlib import Path

import prometheus_client
import pytest
import yaml
from django.test import RequestFactory
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_claims import LossReason, claim, clear_stop, signals
from django_claims.names import group_of
from django_claims.test import FakeClock, beat, held, lose, override_claims, request_stop
from tests.helpers import claims_settings, faults, tidy

_tidy = pytest.fixture(autouse=True)(tidy)

PAGE = (Path(__file__).parent.parent / "docs" / "monitoring.md").read_text()
BLOCKS = dict(re.findall(r"```python\n# (\w+\.py).*?\n(.*?)```", PAGE, re.DOTALL))


def recipe(name):
    """Run one of the recipes as the module that it is."""
    module = types.ModuleType(name.removesuffix(".py"))
    exec(compile(BLOCKS[name], f"docs/monitoring.md: {name}", "exec"), vars(module))
    return module


@pytest.fixture
def connected():
    """Disconnect at the end what a recipe connects."""
    all_signals = [each for each in vars(signals).values() if isinstance(each, signals.Signal)]
    before = [list(each.receivers) for each in all_signals]
    yield
    for each, receivers in zip(all_signals, before, strict=True):
        each.receivers = receivers
        each.sender_receivers_cache.clear()


@pytest.fixture
def metrics(connected, monkeypatch):
    registry = prometheus_client.CollectorRegistry()
    for kind in ("Counter", "Histogram"):
        real = getattr(prometheus_client, kind)
        monkeypatch.setattr(
            prometheus_client, kind, lambda *args, _real=real, **kwargs: _real(*args, registry=registry, **kwargs)
        )
    module = recipe("claims_metrics.py")  # kept: receivers are known by weak reference
    yield lambda name, **labels: registry.get_sample_value(name, labels)
    assert module


def test_the_page_has_all_recipes():
    assert set(BLOCKS) == {
        "settings.py", "claims_metrics.py", "claims_live.py", "claims_tracing.py", "claims_health.py",
    }  # fmt: skip


def test_prometheus_counts_what_happens_by_the_group(metrics):
    with override_claims(clock=FakeClock(), TTL=180) as claims:
        with claim("import", key=7):
            claims.clock.run(70)
            beat()
            claim("import", key=7).acquire()
            request_stop("import", key=7)
        with held("import", key=8):
            claim("import", key=8).acquire(timeout=30)
        request_stop("import", keep=True)
        claim("import").acquire()
        clear_stop("import")
        with claim("import", key="a"):
            lose("import", LossReason.FORGOTTEN, key="a")

    assert metrics("claims_acquire_total", group="import", result="granted") == 2
    assert metrics("claims_acquire_total", group="import", result="held") == 2
    assert metrics("claims_acquire_total", group="import", result="kept_stopped") == 1
    assert metrics("claims_wait_seconds_sum", group="import", result="held") == 30
    assert metrics("claims_held_seconds_count", group="import") == 2
    assert metrics("claims_held_seconds_bucket", group="import", le="60.0") == 1
    assert metrics("claims_lost_total", group="import", reason="forgotten") == 1
    assert metrics("claims_stops_total", group="import", event="requested") == 2
    assert metrics("claims_stops_total", group="import", event="observed") == 1
    assert metrics("claims_renew_margin_seconds_bucket", group="import", le="60.0") >= 1
    assert metrics("claims_renew_failures_total", group="import") is None


def test_prometheus_counts_renewals_that_fail(metrics, settings):
    settings.CLAIMS = claims_settings(TTL=180)
    with override_claims(BACKEND="tests.helpers.FlakyBackend"), claim("import", key=7):
        faults.fail("renew")
        beat()
        faults.clear()

    assert metrics("claims_renew_failures_total", group="import") == 1


def test_the_live_gauge_asks_the_store():
    live = recipe("claims_live.py")
    with override_claims(BACKEND="tests.helpers.FlakyBackend"):
        with claim("import", key=7), claim("import", key=8), claim("export", min_hold=60):
            said = live.live_claims(RequestFactory().get("/")).content.decode()
        later = live.live_claims(RequestFactory().get("/")).content.decode()
        faults.fail("leases")
        down = live.live_claims(RequestFactory().get("/"))

    assert 'claims_live{alias="default",group="import",state="held"} 2.0' in said
    assert 'claims_live{alias="default",group="export",state="resting"} 1.0' in later
    assert 'claims_store_up{alias="default"} 1.0' in said
    assert 'claims_store_up{alias="default"} 0.0' in down.content.decode()
    assert down.headers["Content-Type"].startswith("text/plain")


def test_the_live_gauge_reads_all_pages(monkeypatch):
    live = recipe("claims_live.py")
    with override_claims():
        holds = [claim("import", key=number).acquire() for number in range(2100)]
        assert len(list(live.every_lease("default"))) == 2100
        assert all(hold.release() for hold in holds)


def test_the_alerts_are_on_metrics_that_there_are(metrics):
    rules = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])["groups"][0]["rules"]
    code = BLOCKS["claims_metrics.py"] + BLOCKS["claims_live.py"]
    named = re.findall(r"\bclaims_\w+", " ".join(rule["expr"] for rule in rules))

    assert [rule["alert"] for rule in rules] == ["ClaimLost", "ClaimRenewalsLate", "ClaimStuck"]
    assert len(named) == 4
    for name in named:
        assert f'"{name.removesuffix("_bucket")}"' in code


def test_opentelemetry_gets_events_and_a_span_for_a_loss(connected):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    module = recipe("claims_tracing.py")
    module.tracer = provider.get_tracer("test")

    with override_claims(), provider.get_tracer("test").start_as_current_span("job"):
        with claim("import") as hold:
            claim("import").acquire()
            lose("import")
        with claim("export"):
            pass

    lost, job = exporter.get_finished_spans()
    assert [event.name for event in job.events] == [
        "claim acquired", "claim refused", "claim released", "claim acquired", "claim released",
    ]  # fmt: skip
    assert job.events[0].attributes["claim.fence"] == hold.fence
    assert lost.name == "claim lost"
    assert lost.attributes["reason"] == "taken"
    assert lost.status.status_code is trace.StatusCode.ERROR


def test_the_health_check_tells_stores_and_jobs_that_are_down():
    health = recipe("claims_health.py")

    def ask():
        response = health.claims_health(RequestFactory().get("/"))
        return response.status_code, json.loads(response.content)["problems"]

    with override_claims(BACKEND="tests.helpers.FlakyBackend"):
        assert ask() == (200, {})
        health.MUST_RUN.append("beat")
        assert ask() == (503, {"beat": "nobody runs"})
        with held("beat"):
            assert ask() == (200, {})
        faults.fail("flag", "lease")
        status, problems = ask()
        assert status == 503
        assert "connection refused" in problems["default"]


def test_the_logging_settings_write_what_a_record_is_about(capsys):
    found = {}
    exec(BLOCKS["settings.py"], found)
    package = logging.getLogger("django_claims")
    before = (package.handlers[:], package.level, package.propagate)
    try:
        logging.config.dictConfig(found["LOGGING"])
        with override_claims(), claim("import", key=7):
            claim("import", key=7).acquire()
    finally:
        package.handlers[:], package.propagate = before[0], before[2]
        package.setLevel(before[1])

    line = next(line for line in capsys.readouterr().err.splitlines() if "Claim refused name" in line)
    assert "[claim=import:7 alias=default fence=None holder=" in line


@pytest.mark.parametrize(
    "name, group",
    [
        (claim("import", key=7).name, "import"),
        (claim("import", key=-7).name, "import"),
        (claim("import", key="a:b").name, "import"),
        (claim("import", key=(True, None)).name, "import"),
        (claim("import", key=[None]).name, "import"),
        (claim("import", key=("x" * 600)).name, "import"),
        (claim("a:b", key=1.5).name, "a:b"),
        ("command:reports.nightly_report", "command:reports.nightly_report"),
        (claim("command:reports.nightly_report", key="de").name, "command:reports.nightly_report"),
        ("import", "import"),
        (":7", ":7"),
    ],
)
def test_the_group_is_the_name_without_its_key(name, group):
    assert group_of(name) == group

"""What the documentation names there is, and what there is is told."""

import ast
import builtins
import importlib
import itertools
import re

import pytest
from django.dispatch import Signal

import django_claims
from django_claims import conf, exceptions, fencing, signals
from django_claims import test as for_tests
from django_claims.contrib import celery as for_celery
from tests.docs.pages import PAGES, ROOT, blocks_of, prose
from tests.test_imports import layer_of

DOCS = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
ALL = "\n".join(page.read_text() for page in PAGES)
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "django_claims").rglob("*.py")))
TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("*.py")))
BUILTINS = set(dir(builtins))

FOREIGN = {
    # Django's
    "AdminSite", "AppConfig", "BaseCommand", "CommandError", "DummyCache", "LabelCommand", "LocMemCache", "RedisCache",
    "TestCase", "TransactionTestCase", "ChangeList", "bulk_create", "bulk_update", "select_for_update",
    # Python's
    "Context", "TaskGroup", "create_task", "gather",
    # of peers and other programs
    "AlreadyQueued", "ConcurrentRateLimiter", "LockError", "LockNotOwnedError", "KillMode", "SuccessExitStatus",
    "TheirScheduler", "TimeoutStopSec", "clear_locks", "revoke",
}  # fmt: skip


def slug(heading):
    """Return the anchor that GitHub and MyST give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")


def anchors_of(page):
    source = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#{1,4} (.+)$", source, re.M)
    return {slug(heading) for heading in headings} | set(re.findall(r"^\((\S+)\)=$", page.read_text(), re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    pictures = re.findall(r"^```\{image\} (\S+)", page.read_text(), re.M)
    for target in [*re.findall(r"\]\(([^)\s]+)\)", prose(page)), *pictures]:
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors_of(there), f"{page.name}: {target}"


def test_each_page_is_in_the_contents():
    listed = set()
    for index in (ROOT / "docs" / "index.md", ROOT / "docs" / "decisions" / "index.md"):
        for block in blocks_of(index, "{toctree}"):
            listed |= {index.parent / f"{line}.md" for line in block.text.split() if re.match(r"[\w-]", line)}
    assert [page.name for page in DOCS if page.name != "index.md" and page not in listed] == []


def test_no_page_is_long_without_need():
    assert [page.name for page in DOCS if page.read_text().count("\n") > 330] == []


def test_the_architecture_tells_the_layers_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index("## Where it is") : page.index("## Which thread")]
    rows = [re.findall(r"`([\w.]+)`", cells.split("|")[1]) for cells in table.splitlines() if cells.startswith("| `")]
    assert len(rows) > 8
    levels = [{layer_of(module) for module in row} for row in rows]
    assert all(max(above) <= min(below) for above, below in itertools.pairwise(levels))


# Names.


def test_what_blocks_import_from_the_package_is_there():
    for page in PAGES:
        for block in blocks_of(page, "python"):
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("django_claims"):
                    module = importlib.import_module(node.module)
                    for alias in node.names:
                        assert hasattr(module, alias.name) or is_module(f"{node.module}.{alias.name}"), (
                            f"{block}: {alias.name}"
                        )


def is_module(dotted):
    try:
        importlib.import_module(dotted)
    except ImportError:
        return False
    return True


def test_dotted_names_of_the_package_exist():
    for dotted in set(re.findall(r"\bdjango_claims(?:\.[A-Za-z_]\w*)+", ALL)):
        if dotted.endswith((".py", ".md")) or re.search(r"\.(E|W)\d{3}$", dotted):
            continue
        assert resolves(dotted) or dotted in ("django_claims.database",), dotted


def resolves(dotted):
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        if is_module(".".join(parts[:cut])):
            found = importlib.import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                if part in getattr(found, "__all__", ()):
                    return True  # perhaps of a package that is not here
                if not hasattr(found, part):
                    return False
                found = getattr(found, part)
            return True
    return False


def test_class_names_in_sentences_are_known():
    shown = "\n".join(block.text for page in PAGES for block in blocks_of(page, "python"))
    unknown = set()
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", prose(page)):
            for name in re.findall(r"(?<![\w./'\"-])[A-Z][a-z]+[A-Z]\w*", code):
                if not re.search(rf"\b{name}\b", SOURCE + shown) and name not in FOREIGN | BUILTINS:
                    unknown.add(f"{page.name}: {name}")
    assert unknown == set()


def test_functions_in_sentences_are_known():
    shown = "\n".join(block.text for page in PAGES for block in blocks_of(page))
    unknown = set()
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", prose(page)):
            for name in re.findall(r"\b(\w+)\(", code):
                if not re.search(rf"\b{name}\b", SOURCE + shown) and name not in BUILTINS | FOREIGN:
                    unknown.add(f"{page.name}: {name}()")
    assert unknown == set()


def test_tests_that_pages_name_exist():
    for name in set(re.findall(r"\btest_\w+", "\n".join(map(prose, PAGES)))):
        assert f"def {name}(" in TESTS or (ROOT / "tests").rglob(f"{name}.py"), name


@pytest.mark.parametrize(
    ("names", "page"),
    [
        (set(django_claims.__all__), "api.md exceptions.md"),
        (set(fencing.__all__), "api.md"),
        (set(for_tests.__all__), "api.md testing.md"),
        (set(for_celery.__all__), "api.md"),
    ],
)
def test_each_public_name_is_in_the_reference(names, page):
    text = "\n".join((ROOT / "docs" / name).read_text() for name in page.split())
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


def test_exceptions_are_all_told():
    page = (ROOT / "docs" / "exceptions.md").read_text()
    classes = {
        name
        for name, found in vars(exceptions).items()
        if isinstance(found, type) and found.__module__ == exceptions.__name__
    }
    assert {name for name in classes if not re.search(rf"\b{name}\b", page)} == set()


# Settings, checks, signals.


def test_settings_that_pages_name_exist():
    environment = set(re.findall(r"\bCLAIMS_(?:TEST_\w+)", TESTS))
    for name in set(re.findall(r"\bCLAIMS_[A-Z_]+[A-Z]\b", ALL)):
        assert name in conf.FLAT_SETTINGS or name in environment, name


def test_settings_and_options_are_all_told():
    page = (ROOT / "docs" / "settings.md").read_text()
    from django_claims.backends import cache, database, file, memory, redis

    classes = (
        cache.CacheBackend, database.DatabaseBackend, file.FileBackend, memory.MemoryBackend, redis.RedisBackend
    )  # fmt: skip
    options = {option for cls in classes for option in cls.known_options}
    for name in (*conf.FLAT_SETTINGS, *conf.ALIAS_KEYS, *options):
        assert f"`{name}`" in page, name


def test_ids_of_checks_that_pages_name_exist_and_all_are_told():
    known = set(re.findall(r"[\"'](?:django_claims\.)?([EW]\d{3})[\"']", SOURCE))
    named = set(re.findall(r"\bdjango_claims\.([EW]\d{3})\b", ALL)) | set(
        re.findall(r"\b([EW]\d{3})\b", "\n".join(map(prose, PAGES)))
    )
    assert named == known


def test_signals_that_pages_name_exist_and_all_are_told():
    known = {name for name, found in vars(signals).items() if isinstance(found, Signal)}
    monitoring = (ROOT / "docs" / "monitoring.md").read_text()
    assert {name for name in known - {"shutdown_started"} if f"`{name}`" not in monitoring} == set()
    assert {name for name in known if f"`{name}`" not in signals.__doc__} == set()  # shown by docs/signals.md
    assert ".. automodule:: django_claims.signals" in (ROOT / "docs" / "signals.md").read_text()
    named = set(
        re.findall(r"`(claim_[a-z_]+|stop_(?:requested|cleared|observed)|shutdown_\w+)`", "\n".join(map(prose, PAGES)))
    )
    others = {
        "claim_name",
        "claim_key",
        "claim_ttl",
        "claim_using",
        "claim_alias",
        "claim_fence",
        "claim_holder",
        "claim_all",
        "claim_backends",
    }
    assert named - others <= known | {"stop_requested"}


def test_the_readme_has_one_line_for_the_tests():
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if "-m pytest" in line]
    assert len(lines) == 1

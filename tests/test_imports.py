"""Imports run one way: a module may import only from its own layer or from one below."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "django_claims"

# Bottom to top. A name stands for the module and for all below it.
LAYERS = [
    [
        "exceptions",
        "clock",
        "logs",
        "guess",
        "conf",
        "names",
        "holders",
        "hubs",
        "signals",
        "heartbeat",
        "offload",
        "database",
        "tickets",
        "tokens",
    ],
    ["leases"],
    ["backends.messages", "backends.waiters", "backends.base"],
    ["backends"],
    ["handler"],
    ["stop_flags"],
    ["registry", "deadlines", "deaths", "orphans"],
    ["keeper"],
    ["looking", "async_holds", "renewing", "handing", "transactions", "holds"],
    [
        "interrupts",
        "outcomes",
        "trying",
        "acquiring",
        "adopting",
        "claims",
        "recipes",
        "operations",
        "resources",
        "fencing",
        "shutdown",
    ],
    [
        "decorators",
        "commands",
        "command_signals",
        "command_runs",
        "click_commands",
        "guards",
        "refusals",
    ],
    ["setting_checks"],
    ["apps", "checks", "models", "admin", "cli", "management", "contrib", "test", "pytest_plugin", "migrations"],
    [""],  # django_claims itself, the table of contents
]


def layer_of(module: str) -> int:
    best = (-1, -1)
    for number, names in enumerate(LAYERS):
        for name in names:
            if module == name or (name and module.startswith(name + ".")):
                best = max(best, (len(name), number))
    assert best[1] >= 0, f"{module} has no layer: add it to LAYERS"
    return best[1]


def module_of(path: Path) -> str:
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imported_modules(tree: ast.Module) -> list[str]:
    """Return the modules of the package that are imported, but for those under TYPE_CHECKING."""
    found = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend(a.name for a in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            found.append(node.module or "")
            found.extend(f"{node.module}.{a.name}" for a in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    package = "django_claims"
    inside = [name.removeprefix(package + ".") for name in found if name.startswith(package + ".")]
    return [name for name in inside if is_module(name)]


def is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_a_module_imports_only_from_its_layer_or_below(path):
    module = module_of(path)
    upward = [name for name in imported_modules(ast.parse(path.read_text())) if layer_of(name) > layer_of(module)]

    assert upward == []


def imports(module: str) -> set[str]:
    script = f"import sys; import {module}; print(*sorted(m for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_optional_package_and_no_admin():
    loaded = imports("django_claims")

    assert not loaded & {"redis", "django_redis", "celery", "kombu", "django.contrib.admin"}


@pytest.mark.parametrize(
    "package, home",
    [
        ("redis", "backends/redis.py"),
        ("celery", "contrib/celery/"),
        ("kombu", "contrib/celery/"),
        ("billiard", "contrib/celery/"),
        ("django_celery_beat", "contrib/celery/"),
    ],
)
def test_an_optional_package_is_imported_in_its_own_place_only(package, home):
    importers = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name == package or name.startswith(package + ".") for name in names):
                importers.add(path.relative_to(PACKAGE).as_posix())

    assert [path for path in importers if not path.startswith(home)] == []


def test_the_table_of_contents_defines_nothing():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())

    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.Try)]

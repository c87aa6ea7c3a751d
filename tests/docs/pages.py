"""
The pages, taken apart. What is not run says why in the page's own source, just before the block:

    <!-- not run: the reason -->
    <!-- run by tests/x.py -->         (also once for a whole page, at its top)
    <!-- needs: a_package another -->
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "example_project" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = [page for page in PAGES if "_build" not in page.parts]

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence) *$", re.M | re.S
)
MARKS = ("not run: ", "run by ", "needs: ")
SETTINGS = re.compile(r"CLAIMS|CLAIMS_\w+|CACHES|DATABASES|INSTALLED_APPS|LOGGING")


@dataclass
class Block:
    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    names: set[str] = field(default_factory=set)  # what it defines or sets at its top level

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def not_run(self) -> str:
        return self.mark if self.mark.startswith(("not run: ", "run by ")) else ""

    @property
    def needs(self) -> list[str]:
        return self.mark.removeprefix("needs: ").split() if self.mark.startswith("needs: ") else []

    @property
    def is_settings(self) -> bool:
        return bool(self.names) and all(SETTINGS.fullmatch(name) for name in self.names)

    @property
    def is_tests(self) -> bool:
        return any(name.lower().startswith("test") or name.endswith("Tests") for name in self.names)


def blocks_of(page: Path, language: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    source = page.read_text()
    whole = re.match(r"\A# [^\n]*\n\n<!-- (run by [^\n]*) -->\n", source)
    found = []
    for match in FENCE.finditer(source):
        block = Block(
            page=page,
            line=source.count("\n", 0, match.start("fence")) + 1,
            language=match["language"].strip(),
            text=match["text"],
            mark=match["mark"] or (whole[1] if whole else ""),
        )
        if block.language == "python":
            block.names = set(top_level(ast.parse(block.text, str(block))))
        if language is None or block.language == language:
            found.append(block)
    return found


def top_level(tree: ast.Module) -> list[str]:
    """Return the names of classes, functions and plain assignments of a module."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return found


def prose(page: Path) -> str:
    """Return a page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", page.read_text()), flags=re.S)

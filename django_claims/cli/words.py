"""Text for terminals: nothing that a store says may break a line, and names can be pasted into a shell."""

from __future__ import annotations

import json
import math
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from django.core.management.base import BaseCommand

from django_claims import conf
from django_claims.clock import ago
from django_claims.leases import Lease, Progress

Style = Callable[[str], str]


def clean(value: object) -> str:
    """Return text on one line, with what is not printable (escapes, line ends, bidi marks) spelled out."""
    return "".join(char if char.isprintable() else _escaped(char) for char in str(value))


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def quoted(name: str) -> str:
    """Return a name as a shell reads it, and as easy to read for people as can be."""
    if re.fullmatch(r"[\w@%+=:,./-]+", name, re.ASCII):
        return name
    if not name.isprintable():  # bash, zsh and ksh read this
        return "$'" + clean(name.replace("\\", "\\\\").replace("'", "\\'")) + "'"
    if "'" in name and not re.search(r'["$`\\!]', name):
        return f'"{name}"'
    return shlex.quote(name)


def command_line(verb: str, name: str, options: str = "", *, using: str = conf.DEFAULT_ALIAS) -> str:
    """Return a line that can be pasted."""
    words = ["manage.py claims", verb]
    alias = "" if using == conf.DEFAULT_ALIAS else f"--using {quoted(using)}"
    words += [alias, options, "--", quoted(name)] if name.startswith("-") else [quoted(name), options, alias]
    return " ".join(word for word in words if word)


def width(text: str) -> int:
    """Return the columns that text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], styles: dict[tuple[int, int], Style]) -> list[str]:
    """Return aligned lines. `styles` colours single cells, by row and column."""
    cells = [list(head), *(list(map(clean, row)) for row in rows)]
    widths = [max(width(line[at]) for line in cells) for at in range(len(head))]
    lines = []
    for number, line in enumerate(cells, -1):
        shown = []
        for at, cell in enumerate(line):
            room = " " * (widths[at] - width(cell)) if at < len(line) - 1 else ""
            style = styles.get((number, at))
            shown.append((style(cell) if style else cell) + room)
        lines.append("  ".join(shown).rstrip())
    return lines


def say(command: BaseCommand, text: str = "") -> None:
    """Print, also where the terminal lacks a letter."""
    encoding = getattr(command.stdout, "encoding", None) or "utf-8"
    command.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def say_json(command: BaseCommand, record: dict[str, Any]) -> None:
    try:
        line = json.dumps(record, allow_nan=False)
    except ValueError:  # a progress of NaN or infinity, which JSON has not
        line = json.dumps(finite(record))
    command.stdout.write(line)


def finite(value: Any) -> Any:
    """Return what JSON has of a record: its numbers know neither NaN nor infinity."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def state_style(command: BaseCommand, state: str) -> Style | None:
    """Return the colour of a state."""
    name = {
        "held": "SUCCESS",
        "stop_asked": "WARNING",
        "stopping": "WARNING",
        "kept_stopped": "WARNING",
        "handed_over": "WARNING",
        "overdue": "ERROR",
        "unreadable": "ERROR",
    }.get(state)
    style: Style | None = getattr(command.style, name) if name else None
    return style


def beat(lease: Lease) -> str:
    """Return how long ago the lease was renewed."""
    if lease.renewed_at is None:
        return "-"
    return ago((lease.read_at - lease.renewed_at).total_seconds())


def holder(lease: Lease) -> str:
    return str(lease.holder) if lease.holder else "-"


def progress(how_far: Progress | None, *, note_length: int = 200) -> str:
    """Return '30 of 120 (25 %) note'."""
    if how_far is None:
        return "-"
    parts = []
    done, total = how_far.done, how_far.total
    if done is not None:
        parts.append(f"{_number(done)} of {_number(total)}" if total is not None else _number(done))
        if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
            parts.append(f"({done / total:.0%})".replace("%", " %"))
    if how_far.note:
        note = clean(how_far.note)
        parts.append(note if len(note) <= note_length else note[: note_length - 3] + "...")
    return " ".join(parts) or "-"


def _number(value: object) -> str:
    # A foreign record may hold anything.
    return f"{value:.10g}" if isinstance(value, int | float) and abs(value) < 1e15 else clean(value)[:40]

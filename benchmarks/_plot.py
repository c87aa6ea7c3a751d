"""Pictures of tables, for readers on light and on dark pages: their own ground is white."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._measure import Table, number

OURS, OTHERS = "#2b6cb0", "#a0aec0"
WIDE = 15.0
"""A scale is logarithmic where the largest value is so many times the smallest."""


def plot(path: Path, tables: Sequence[Table]) -> bool:
    """Draw the tables that have something to draw, one below the other, as SVG. Return whether there are any."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "django-claims"
    import matplotlib.pyplot as plt

    tables = [table for table in tables if table.bars or table.lines]
    if not tables:
        return False
    heights = [len(table.bars) * 0.28 + 0.9 if table.bars else 4.0 for table in tables]
    figure, axes = plt.subplots(
        len(tables), figsize=(8, sum(heights)), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, table in zip(axes[:, 0], tables, strict=True):
        (_draw_bars if table.bars else _draw_lines)(axis, table)
        axis.set_title(table.title, fontsize=10, loc="left")
        axis.tick_params(which="both", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")
    plt.close(figure)
    return True


def _plain(axis: Any) -> None:
    """Label the powers of ten alone, as numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _draw_bars(axis: Any, table: Table) -> None:
    names = list(table.bars)[::-1]
    values = [table.bars[name] for name in names]
    wide = max(values) / min(values) > WIDE
    axis.barh(names, values, color=[OURS if "django-claims" in name else OTHERS for name in names])
    if wide:
        axis.set_xscale("log")
    _plain(axis.xaxis)
    axis.set_xlim(min(values) * 0.5 if wide else 0, max(values) * (3 if wide else 1.12))
    axis.set_xlabel(f"{table.unit}, logarithmic" if wide else table.unit, fontsize=8)
    for at, value in enumerate(values):
        axis.text(value, at, f" {number(value)}", va="center", fontsize=7)


def _draw_lines(axis: Any, table: Table) -> None:
    for name, points in table.lines.items():
        axis.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
    axis.set_xscale("log")
    axis.set_yscale("log")
    _plain(axis.xaxis)
    _plain(axis.yaxis)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    axis.set_xlabel(table.columns[0], fontsize=8)
    axis.set_ylabel(table.unit, fontsize=8)

"""Sphinx configuration."""

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = _project["name"]
author = _project["authors"][0]["name"]
release = version = _project["version"]
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
html_theme = "furo"
html_title = f"{project} {version}"
exclude_patterns = ["_build"]
myst_heading_anchors = 3

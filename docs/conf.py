"""Sphinx configuration."""

import tomllib
from pathlib import Path

import django
from django.conf import settings

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = _project["name"]
author = _project["authors"][0]["name"]
release = version = _project["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_typehints = "none"  # docstrings say what a type does not
autodoc_member_order = "bysource"
myst_enable_extensions = ["deflist"]
html_theme = "furo"
html_title = f"{project} {version}"
exclude_patterns = ["_build"]
myst_heading_anchors = 3

settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django_claims"])  # the API is read from the package
django.setup()

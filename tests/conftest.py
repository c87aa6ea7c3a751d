"""Fixtures for all tests."""

import os

import pytest

REQUIRED = os.environ.get("CI") == "true"


def pytest_collection_modifyitems(config, items):
    """Leave out what takes long, but for CI or when asked for by -m."""
    if REQUIRED or config.option.markexpr:
        return
    skip = pytest.mark.skip(reason="long: set CI=true or pass -m long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)

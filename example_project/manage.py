#!/usr/bin/env python
"""Django's command-line utility for administrative tasks."""

import os
import sys


def main() -> None:
    # Not setdefault(): this project has one settings module, whatever the shell has left from another.
    os.environ["DJANGO_SETTINGS_MODULE"] = "example.settings"
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise ImportError("Django is not installed here. Run: pip install -e '.[demo]' in the clone.") from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()

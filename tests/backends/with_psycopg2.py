"""A plugin of pytest (`-p tests.backends.with_psycopg2`): Django talks over psycopg2, though psycopg 3 is there."""

import sys

import psycopg  # the tests' own

_hidden = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "psycopg"}
sys.modules.update(dict.fromkeys(_hidden))  # None: not to be imported
try:
    from django.db.backends.postgresql import base, psycopg_any
finally:
    sys.modules.update(_hidden)

assert base.Database.__name__ == "psycopg2"
assert not psycopg_any.is_psycopg3
assert psycopg

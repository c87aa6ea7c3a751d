"""
What a claim on a thing is called, after what is really written.

    with claim(resource("reports/../reports/daily.csv")):   # file:web-1:'/srv/shop/reports/daily.csv'
    with claim(resource(order)):                            # row:shop.order:5
    with claim(resource(Order)):                            # table:shop.order
    with claim(resource(connections["default"])):           # database:postgresql:db-1:5432:'shop'

However the caller spells the thing, the name is the same, so that no flag, link or working
directory leads two writers of one thing past each other.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from django_claims import conf
from django_claims.exceptions import InvalidClaim
from django_claims.handler import claim_backends
from django_claims.names import checked, primary_key, with_key

_HOW_TO_NAME = (
    "Pass a path, a saved model instance, a model class or a connection of django.db.connections; "
    "or name it yourself, for example claim('price-list', key=supplier.code)."
)
_DEFAULT_PORTS = {"postgresql": "5432", "mysql": "3306", "oracle": "1521"}
_THIS_MACHINE = {"", "localhost", "127.0.0.1", "::1"}


def resource(obj: Any, shared: bool = False) -> str:
    """
    Return the name of a claim on what is really written.

    - Text, bytes or a path object is a path, also a bare word: links, dots and slashes are
      resolved as far as they exist, and this machine's host name goes along, unless the path
      lies on a disk that machines share (`shared=True`, the same from all of them), or each
      alias of CLAIMS has a store that no other machine can reach.
    - A model instance is its row: model and primary key, of a proxy the model behind it.
    - A model class is its table.
    - A database connection is the database: engine, host, port and name; on SQLite, the file.

    Raises InvalidClaim for anything else, and for what is not saved yet.

    Limits: hard links, bind mounts, and upper against lower case on a disk that does not tell
    them apart stay different names; so do a server's alias in DNS, its pooler and its replicas.
    A file, a row and its table are three resources: a claim on one does not cover the others.
    """
    match obj:
        case models.Model():
            name = _row(obj)
        case type() if issubclass(obj, models.Model) and obj is not models.Model:
            name = f"table:{_label(obj)}"
        case BaseDatabaseWrapper():
            name = _database(obj, shared)
        case ConnectionProxy():  # django.db.connection
            name = _database(connections[obj.alias], shared)
        case str() | bytes() | os.PathLike():
            name = _file(obj, shared)
        case _:
            # Not its repr: that of a queryset asks the database.
            raise InvalidClaim(f"resource() has no name for an object of {type(obj).__qualname__}. {_HOW_TO_NAME}")
    return checked(name)


def _is_for_all(shared: bool) -> bool:
    """Say whether a name need not tell the machines apart. One that changes its name stays the same then."""
    if shared:
        return True
    try:
        backends = claim_backends.all() if conf.enabled() else []
    except ImproperlyConfigured:  # for whoever asks the store to say
        return False
    return bool(backends) and all(backend.is_machine_local for backend in backends)


def _host(shared: bool) -> str:
    """Return what goes before a thing of this machine; no quoted key begins so."""
    return "" if _is_for_all(shared) else f":{quote(socket.gethostname(), safe='')}"


def _file(path: str | bytes | os.PathLike[Any], shared: bool) -> str:
    text = os.fsdecode(path)
    if not text:
        raise InvalidClaim("An empty path names nothing: ''.")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        # As a path it would lie in the working directory, and so have a name in each.
        raise InvalidClaim(f"{text!r} is an address, not a path. Use it as a name: claim('upload', key={text!r}).")
    try:
        real = os.path.realpath(text)
    except FileNotFoundError as error:
        raise InvalidClaim(f"The working directory is gone, so {text!r} leads nowhere. Pass a full path.") from error
    except ValueError as error:  # a null character, or one that no file system has
        raise InvalidClaim(f"No file can be called {text!r}: {error}.") from error
    return with_key(f"file{_host(shared)}", real)


def _label(model: type[models.Model]) -> str:
    """Return the model that has the table: a proxy has none of its own."""
    concrete = model._meta.concrete_model
    if concrete is None or model._meta.abstract:
        raise InvalidClaim(f"{model._meta.label} is abstract: it has no table. Pass a model that inherits from it.")
    return concrete._meta.label_lower


def _row(instance: models.Model) -> str:
    return with_key(f"row:{_label(type(instance))}", primary_key(instance))


def _database(connection: BaseDatabaseWrapper, shared: bool) -> str:
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return _sqlite(str(settings["NAME"] or ""), shared)
    options = settings.get("OPTIONS") or {}
    host = _first(options, "host", "unix_socket") or str(settings.get("HOST") or "")
    port = _first(options, "port") or str(settings.get("PORT") or "") or _DEFAULT_PORTS.get(connection.vendor, "")
    name = _first(options, "dbname", "database", "db") or str(settings.get("NAME") or "")
    elsewhere = _first(options, "service", "read_default_file")  # a file of the driver's says the rest
    host = host.lower().rstrip(".")
    if host in _THIS_MACHINE or host.startswith("/"):  # by a socket, or by the loopback
        host = "" if elsewhere or _is_for_all(shared) else socket.gethostname().lower()
    where = ":".join(quote(part, safe="") for part in (connection.vendor, host, port))
    return with_key(f"database:{where}", (name, elsewhere) if elsewhere else name)


def _first(options: Mapping[str, Any], *names: str) -> str:
    """Return the first option that is set, as text."""
    return next((str(options[name]) for name in names if options.get(name)), "")


def _sqlite(name: str, shared: bool) -> str:
    in_memory = name in ("", ":memory:")
    if name.startswith("file:"):  # SQLite's own form of address: file:/path?options, file://localhost/path
        address, _, query = name.removeprefix("file:").partition("#")[0].partition("?")
        path = unquote(re.sub(r"^//[^/]*", "", address))
        in_memory = path in ("", ":memory:") or "mode=memory" in query.split("&")
        if not in_memory:
            return _file(path, shared)
    if in_memory:  # nobody else's: each process has its own
        return with_key(f"memory{_host(shared)}:{os.getpid()}", name)
    return _file(name, shared)

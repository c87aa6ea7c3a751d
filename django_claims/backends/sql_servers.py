"""PostgreSQL and MariaDB/MySQL: leases in the site's own database, over sessions of our own."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any

from django.db import Error, OperationalError

from django_claims.backends.cuts import cuts, line_of, number_of
from django_claims.backends.sql_pools import Database, close_quietly, connect
from django_claims.clock import clock

SERVER_SHARE = 0.8
"""What the server has of the time: a statement that it ends itself has certainly done nothing, one that we cut may."""

NOT_DEAD = {"57014", "55P03", 1205, 1969, 3024}
"""What a session that lives says about a statement that took too long."""


class DatabaseServer(Database):
    """The connections of this process to a database on a server."""

    def _session(self, connection: Any, seconds: float) -> None:
        """Set up a session that was opened: statements end by themselves, and see what others have committed."""
        raise NotImplementedError

    def may_be_dead(self, error: Error) -> bool:
        code = error.args[0] if error.args else None
        return getattr(error.__cause__, "sqlstate", code) not in NOT_DEAD

    def _new(self) -> Any:
        connection = super()._new()
        connection.claims_line = None
        connection.settings_dict["OPTIONS"].update(self._bounds(self.limit))
        return connection

    def _bounds(self, seconds: float) -> dict[str, Any]:
        """Return options that end the driver's own attempts, some time after nobody waits for them any more."""
        return {}

    def _prepare(self, connection: Any, ends: float) -> None:
        if connection.connection is None:
            self._connect(connection, ends)
        elif connection.claims_line is not None:
            cuts.set(connection.claims_line, ends)

    def _connect(self, connection: Any, ends: float) -> None:
        """
        Connect in a thread of its own, which is left behind when the time is up.

        Looking up a host, TLS and drivers that count in whole seconds heed no bound of ours.
        """
        attempt = _Attempt(connection, ends, lambda: self._session(connection, self.limit * SERVER_SHARE))
        try:
            threading.Thread(target=attempt.run, name="django-claims connect", daemon=True).start()
        except RuntimeError:  # none to be had, as at the end of the program
            attempt.run()
        attempt.wait()

    def _done_with(self, connection: Any) -> None:
        if connection.claims_line is not None:
            cuts.discard(connection.claims_line)

    def after_fork(self) -> None:
        """In the child: put nothing in the place of the parent's sockets, so that no driver says good-bye there."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for connection in [connection for room in self._rooms.all() for connection in room.idle]:
            for number in connection.claims_numbers:
                os.dup2(nothing, number)
        os.close(nothing)
        super().after_fork()


class _Attempt:
    """One try to connect, which its caller may give up on."""

    def __init__(self, connection: Any, ends: float, then: Callable[[], None]) -> None:
        self._connection = connection
        self._ends = ends
        self._then = then
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._given_up = False
        self._error: BaseException | None = None
        self._get_raw = connection.get_new_connection
        connection.get_new_connection = self._get_raw_on_a_line
        real_close = connection._close

        def close() -> Any:
            line, connection.claims_line = connection.claims_line, None
            try:
                return real_close()
            finally:
                if line is not None:
                    line.close()

        connection._close = close

    def _get_raw_on_a_line(self, params: dict[str, Any]) -> Any:
        raw = self._get_raw(params)
        line = self._connection.claims_line = line_of(raw)
        self._connection.claims_numbers = []
        if line is not None:
            self._connection.claims_numbers = [number_of(raw), line.fileno()]
            os.set_inheritable(number_of(raw), False)  # MariaDB's client leaves it to programs that this one starts
            cuts.set(line, self._ends)
        return raw

    def run(self) -> None:
        try:
            connect(self._connection)
            self._then()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._over.set()
            given_up = self._given_up
        if given_up:
            close_quietly(self._connection)
        del self._connection

    def wait(self) -> None:
        """Return when it is connected. Raises what connecting raised, and OperationalError when the time is up."""
        try:
            self._over.wait(max(self._ends - clock(), 0.0))
        finally:  # or an exception of a signal handler has ended the wait
            with self._lock:
                self._given_up = not self._over.is_set()
        if self._given_up:
            raise OperationalError("no connection in time")
        if self._error is not None:
            raise self._error


class PostgreSQL(DatabaseServer):
    """
    Our few statements are prepared in the session, which saves planning them anew.

    A pooler may hand each transaction to another session: there nothing is prepared or set, since
    others would find it. It gives itself away by another process number than the server's.
    """

    def __init__(self, alias: str, settings: dict[str, Any]) -> None:
        from django.db.backends.postgresql.psycopg_any import IsolationLevel, is_psycopg3

        super().__init__(alias, settings)
        options = self._settings["OPTIONS"]
        options.pop("pool", None)
        options["isolation_level"] = IsolationLevel.READ_COMMITTED
        if is_psycopg3:
            options.update(server_side_binding=True, prepare_threshold=None)

    def _bounds(self, seconds: float) -> dict[str, Any]:
        hosts = str(self._settings.get("HOST") or "").count(",") + 1
        return {"connect_timeout": max(2, math.ceil(seconds / hosts))}  # for each host, and not under 2

    def _session(self, connection: Any, seconds: float) -> None:
        if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            return  # that is how one tells Django of such a pooler
        bound = f"{math.ceil(seconds * 1000)}ms"
        values = {
            "default_transaction_isolation": "read committed",
            "statement_timeout": bound,
            "lock_timeout": bound,
            "idle_in_transaction_session_timeout": bound,
        }
        raw = connection.connection
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {', '.join(['set_config(%s, %s, false)'] * len(values))} WHERE pg_backend_pid() = %s",
                [*(word for pair in values.items() for word in pair), raw.info.backend_pid],
            )
            if cursor.fetchone() is not None and hasattr(raw, "prepare_threshold"):  # psycopg2 prepares nothing
                raw.prepare_threshold = 1


class MySQL(DatabaseServer):
    """MariaDB too."""

    def __init__(self, alias: str, settings: dict[str, Any]) -> None:
        super().__init__(alias, settings)
        self._settings["OPTIONS"]["isolation_level"] = "read committed"

    def _bounds(self, seconds: float) -> dict[str, Any]:
        return dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), math.ceil(seconds) + 1)

    def _session(self, connection: Any, seconds: float) -> None:
        whole = max(1, math.ceil(seconds))
        values: dict[str, object] = {
            "time_zone": "'+00:00'",  # in others an hour comes twice, and the clock with it
            "innodb_lock_wait_timeout": whole,
            "lock_wait_timeout": whole,
        }
        if connection.mysql_is_mariadb:
            values.update(max_statement_time=seconds, idle_transaction_timeout=whole)
        else:
            values.update(max_execution_time=math.ceil(seconds * 1000))
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION {', '.join(f'{name} = {value}' for name, value in values.items())}")

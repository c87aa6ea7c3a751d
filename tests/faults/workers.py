"""A process that takes, holds, renews, waits for and releases a few names at random, and writes down what it sees."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from django_claims.clock import clock
from tests.faults import clocks, mutants, recording
from tests.faults.history import Writer, digest

WHERE = signal.SIGUSR2
"""Has a worker write to its log where each of its threads stands."""
GAP = 0.03
TICK = 0.015
OPERATIONS = {
    "brief": 60, "long": 4, "wait": 20, "both": 4, "write": 8, "rest": 1, "cap": 1, "drop": 1, "stop": 4, "keep": 1,
    "give": 4, "adopt": 6,
}  # fmt: skip


def run(spec: dict[str, Any]) -> None:
    """Be a worker until it is over."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with the spawner
    if spec.get("clock"):
        clocks.follow(spec["clock"])
    faulthandler.register(WHERE, all_threads=True, chain=False)
    writer = Writer(Path(spec["dir"]), spec["p"])
    threading.Thread(target=_tick, args=(writer,), daemon=True).start()
    recording.install(spec["kind"], writer, mutants.backends(spec["mutant"]))
    set_up(spec["settings"])
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    mutants.apply(spec["mutant"])
    from django_claims import shutdown

    shutdown.install()
    if spec["kind"] == "file":
        from django_claims.backends import file_places

        file_places.temporary_places = list  # where tests have to be
    me = os.getpid()
    try:
        if spec.get("role") == "inspector":
            Inspector(spec, writer).run()
        elif spec["kind"] == "memory":
            run_in_threads(spec, writer)
        else:
            Worker(spec, writer).run()
    finally:
        if os.getpid() == me:  # and not a child that it has forked
            writer.write("exit", t=clock())


def run_in_threads(spec: dict[str, Any], writer: Writer) -> None:
    """Be several workers in one process, and then look at what is left: nobody else can."""
    workers = [Worker({**spec, "seed": f"{spec['seed']} {number}"}, writer) for number in range(spec["threads"])]
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(spec["ends"] - clock() + 20)
    now = clock()
    Inspector({**spec, "all_ended": now, "gone_by": now + spec["ttl"] + 1}, writer).run()


def set_up(wanted: dict[str, Any]) -> None:
    """Give this process settings of its own, as if it had started with them."""
    from django.core.cache import caches
    from django.db import connections

    for name, value in wanted.items():
        setattr(settings, name, value)
    for handler in (connections, caches):
        vars(handler).pop("settings", None)
        handler._settings = None  # type: ignore[assignment]
        for alias in [alias for alias in handler if hasattr(handler._connections, alias)]:
            del handler[alias]


def _tick(writer: Writer) -> None:
    """Note when this process stood still."""
    last = clock()
    while True:
        time.sleep(0.005)
        now = clock()
        if now - last > TICK:
            writer.write("gap", t0=last, t1=now)
        last = now


class Worker:
    """What one process does."""

    def __init__(self, spec: dict[str, Any], writer: Writer) -> None:
        self.spec = spec
        self.writer = writer
        self.names: list[str] = spec["names"]
        self.ttl: float = spec["ttl"]
        self.random = random.Random(f"{spec['seed']} {spec['p']}")
        weights = {**(OPERATIONS if not spec.get("only") else {}), **spec.get("operations", {})}
        if not spec.get("guard"):
            weights.pop("write", None)
        self.operations = list(weights)
        self.weights = list(weights.values())
        self.forks = 0
        self.seen_stop = ""

    def run(self) -> None:
        from django_claims import BackendUnavailable, ClaimLost, ClaimRefused, StaleFence, StopRequested

        expected = (ClaimRefused, ClaimLost, BackendUnavailable, StopRequested, StaleFence)
        while clock() < self.spec["ends"]:
            operation = self.random.choices(self.operations, self.weights)[0]
            try:
                getattr(self, operation)()
            except BackendUnavailable:
                time.sleep(0.02)
            except expected:
                pass
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{operation}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
                self.writer.write("crash", t=clock(), text=text[:500])
                time.sleep(0.1)
            time.sleep(self.random.uniform(0, self.spec["pause"]))

    # -- what a hold is used for -------------------------------------------------------------------

    def name(self) -> str:
        return self.random.choice(self.names)

    def claim(self, *names: str, **recipe: Any) -> Any:
        from django_claims import claim_all

        recipe = {"ttl": self.ttl, **self.spec.get("recipe", {}), **recipe}
        return claim_all(*(names or (self.name(),)), follow_dead=self.spec["follow_dead"], **recipe)

    @contextlib.contextmanager
    def opened(self, hold: Any, cap: float | None = None) -> Iterator[Any]:
        """Note that it was given and given up."""
        recording.note_pushed(hold)
        about = {"n": list(hold.names), "tok": digest(hold.token), "fence": hold.fence}
        self.writer.write("open", **about, t=clock(), rd=min(hold.renew_deadline, cap or 1e9))
        publish(self.spec, True)
        try:
            with hold:
                yield hold
        finally:
            publish(self.spec, False)
            self.writer.write("over", **about, t=clock(), lost=str(hold.loss_reason or ""))

    def work(self, hold: Any, seconds: float, *, asks: bool = True) -> None:
        """
        Guarded work: look, act, and look again, until it is done or the hold is lost or asked to stop.

        One who `asks` the store now and then does not look meanwhile, which may be long.
        """
        about = {"n": list(hold.names), "tok": digest(hold.token), "fence": hold.fence}
        ends, last, first = clock() + seconds, 0.0, True
        while True:
            t = clock()
            if not hold.held:
                break
            if first or t - last > GAP:
                self.writer.write("act", tok=about["tok"], t=t)
            first, last = False, t
            if hold.stop_requested:
                if about["tok"] != self.seen_stop:
                    self.seen_stop = about["tok"]
                    self.writer.write("stopseen", **about, t=clock())
                break
            if t >= ends:
                break
            if asks and self.random.random() < 0.02:
                hold.checkpoint(done=1, total=2, note="half")
            elif asks and self.random.random() < 0.01:
                hold.renew()
            time.sleep(self.random.uniform(0.001, 0.008))
        if last:
            self.writer.write("act", tok=about["tok"], t=last)
        if hold.lost:
            self.stay_lost(hold, about)

    def stay_lost(self, hold: Any, about: dict[str, Any]) -> None:
        """Lost is for good: look for a while, sometimes."""
        ends = clock() + self.ttl * 0.4 * (self.random.random() < self.spec.get("doubts", 0.3))
        while clock() < ends:
            if hold.held or not hold.lost:
                self.writer.write("revived", **about, t=clock())
                return
            time.sleep(0.01)

    def watch(self, hold: Any) -> Callable[[], None]:
        """Have a thread wait for the loss, and note when it heard of it; return what ends the watch."""
        over = threading.Event()
        event = hold.lost_event

        def wait() -> None:
            while not over.is_set():
                if event.wait(0.5):
                    t = clock()
                    about = {"n": list(hold.names), "tok": digest(hold.token), "fence": hold.fence}
                    self.writer.write("lost", **about, t=t, deadline=hold.deadline, res=str(hold.loss_reason))
                    return

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()

        def end() -> None:
            over.set()

        return end

    # -- operations --------------------------------------------------------------------------------

    def brief(self) -> None:
        """Try once; a little work."""
        if hold := self.claim().acquire():
            with self.opened(hold):
                self.work(hold, self.random.uniform(0, self.spec.get("brief", 0.015)))

    def long(self) -> None:
        """Hold over several heartbeats."""
        if hold := self.claim().acquire():
            end = self.watch(hold)
            try:
                with self.opened(hold):
                    self.work(hold, self.random.uniform(0.3, 1.6) * self.ttl)
            finally:
                end()

    def cling(self) -> None:
        """Hold for as long as it may be, and do nothing but look."""
        if hold := self.claim().acquire():
            end = self.watch(hold)
            try:
                with self.opened(hold):
                    self.work(hold, min(4 * self.ttl, self.spec["ends"] - clock()), asks=False)
            finally:
                end()

    def wait(self) -> None:
        """Wait in vain or not."""
        t0 = clock()
        timeout = max(min(self.random.uniform(0.2, 2.5) * self.ttl, self.spec["ends"] - t0), 0.0)
        recipe = self.claim(timeout=timeout)
        hold = None
        result = "error"
        try:
            hold = recipe.acquire()
            result = "none" if hold is None else "hold"
        finally:
            tok = digest(hold.token) if hold else ""
            self.writer.write("wait", n=list(recipe.names), tok=tok, t0=t0, t1=clock(), timeout=timeout, res=result)
        if hold:
            with self.opened(hold):
                self.work(hold, self.random.uniform(0, 0.02))

    def both(self) -> None:
        """Two names in one step."""
        if len(self.names) > 1 and (hold := self.claim(*self.random.sample(self.names, 2)).acquire()):
            with self.opened(hold):
                self.work(hold, self.random.uniform(0, 0.2))

    def rest(self) -> None:
        """Leave it resting."""
        if hold := self.claim(min_hold=0.15).acquire():
            with self.opened(hold):
                self.work(hold, self.random.uniform(0, 0.05))

    def cap(self) -> None:
        """Hold no longer than so long."""
        most = self.random.uniform(0.1, 0.5)
        if hold := self.claim(max_hold=most).acquire():
            end = self.watch(hold)
            try:
                with self.opened(hold, most):
                    self.work(hold, 0.4)
            finally:
                end()

    def drop(self) -> None:
        """Forget the hold."""
        hold = self.claim().acquire()
        if hold:
            self.work(hold, 0.005)
        del hold
        gc.collect()

    def give(self) -> None:
        """Hand it over: the ticket is left where others find it."""
        if hold := self.claim().acquire():
            with self.opened(hold):
                self.work(hold, self.random.uniform(0, 0.02))
                if hold.stop_requested:
                    return
                ticket = hold.hand_over()
                if hold.held or hold.lost:
                    self.writer.write("crash", t=clock(), text=f"handed over: held {hold.held}, lost {hold.lost}")
            path = Path(self.spec["dir"], f"given-{digest(ticket)}")
            path.write_text(json.dumps([hold.name, ticket]))
            path.rename(path.with_name(f"ticket-{digest(ticket)}"))

    def adopt(self) -> None:
        """Go on with what another has handed over; a ticket is delivered twice sometimes."""
        paths = sorted(Path(self.spec["dir"]).glob("ticket-*"))
        if not paths:
            return
        path = self.random.choice(paths)
        try:
            name, ticket = json.loads(path.read_text())
        except FileNotFoundError:
            return
        if self.random.random() < 0.8:
            path.unlink(missing_ok=True)
        hold = self.claim(name).adopt(ticket)
        with self.opened(hold):
            self.work(hold, self.random.uniform(0, 0.05))

    def write(self) -> None:
        """A guarded write: read a counter, think, write one more."""
        if hold := self.claim().acquire():
            with self.opened(hold):
                self.guarded_write(hold)

    def guarded_write(self, hold: Any) -> None:
        from django.db import OperationalError

        from django_claims.fencing import fenced_get, fenced_update
        from tests.fencing_app.models import Stock

        mode = self.spec.get("guard_mode", "fence")
        rows = Stock.objects.filter(code=hold.name)
        try:
            row = fenced_get(rows, hold) if mode == "fence" else rows.get()
            value = row.count + 1
            self.think(hold)
            if mode == "held" and not hold.held:
                return
            self.stop_here(hold)
            changed = fenced_update(rows, hold, count=value) if mode == "fence" else rows.update(count=value)
        except OperationalError:  # SQLite is busy
            return
        if changed:
            self.writer.write("wrote", row=hold.name, value=value, fence=hold.fence, t=clock())

    def think(self, hold: Any) -> None:
        time.sleep(self.random.uniform(0, self.spec.get("think", 0.02)))

    def stop_here(self, hold: Any) -> None:
        """Between check and write: stop, until somebody has the process go on."""
        if self.random.random() < self.spec.get("stops_itself", 0):
            Path(self.spec["dir"], f"stopped-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    def stop(self) -> None:
        """Be the operator: ask the run that is seen to stop."""
        from django_claims import claim, request_stop

        name = self.name()
        lease = claim(name).lease()
        if lease is None or lease.state not in ("held", "overdue"):
            return
        about = {"n": [name], "fence": lease.fence, "keep": False, "t0": clock()}
        result = "error"
        try:
            flag = request_stop(name, fence=lease.fence, by=self.spec["p"])
            result = "none" if flag is None else "flag"
        finally:
            self.writer.write("stop", **about, t1=clock(), res=result)

    def keep(self) -> None:
        """Be the operator: keep a name stopped for a moment."""
        from django_claims import clear_stop, request_stop

        name = self.name()
        about = {"n": [name], "fence": 0, "keep": True, "t0": clock()}
        result = "error"
        try:
            request_stop(name, keep=True, ttl=0.1, by=self.spec["p"])
            result = "flag"
        finally:
            self.writer.write("stop", **about, t1=clock(), res=result)
        time.sleep(0.02)
        clear_stop(name)

    def force(self) -> None:
        """Be the operator: end the run that is seen."""
        from django_claims import claim, force_release

        name = self.name()
        lease = claim(name).lease()
        if lease is None:
            return
        about = {"n": [name], "fence": lease.fence, "t0": clock()}
        result: Any = None
        try:
            result = force_release(name, fence=lease.fence, by=self.spec["p"])
        finally:
            self.writer.write("force", **about, t1=clock(), res=result)

    def fork(self) -> None:
        """Fork in the middle of a hold: the child has nothing, and may claim for itself."""
        hold = self.claim().acquire()
        if not hold:
            return
        with self.opened(hold):
            self.forks += 1
            pid = os.fork()
            if pid == 0:
                self.be_child(hold)
            self.work(hold, 0.1)
            ends = clock() + 5
            while os.waitpid(pid, os.WNOHANG) == (0, 0) and clock() < ends:
                self.work(hold, 0.05)
                time.sleep(0.005)

    def be_child(self, hold: Any) -> None:
        self.writer = recording.writer = Writer(Path(self.spec["dir"]), f"{self.spec['p']}f{self.forks}")
        threading.Thread(target=_tick, args=(self.writer,), daemon=True).start()
        politely = False
        try:
            self.work(hold, 0.02)
            result = str(hold.release())
            if result != "not_held":
                self.writer.write("crash", t=clock(), text=f"a forked child released its parent's hold: {result}")
            self.random.seed(f"{os.getpid()}")
            self.long()
            politely = self.random.random() < 0.5
        except BaseException as error:
            from django_claims import ClaimError, StopRequested

            if not isinstance(error, ClaimError | StopRequested):
                self.writer.write("crash", t=clock(), text=f"in a forked child: {type(error).__name__}: {error}"[:300])
        finally:
            self.writer.write("exit", t=clock())
            if politely:
                sys.exit(0)
            os._exit(0)

    def threads(self) -> None:
        """Many threads at once."""

        def one() -> None:
            from django_claims import ClaimError, StopRequested

            with contextlib.suppress(ClaimError, StopRequested):
                for _ in range(3):
                    self.random.choice((self.brief, self.brief, self.wait, self.drop))()

        crew = [threading.Thread(target=one, daemon=True) for _ in range(self.spec.get("crowd", 60))]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join(30)

    def tasks(self) -> None:
        """Many tasks at once, of which some are cancelled in the middle."""
        asyncio.run(self.many_tasks())

    async def many_tasks(self) -> None:
        from django_claims import ClaimError

        async def one() -> None:
            hold = await self.claim(timeout=self.random.uniform(0, 0.3)).aacquire()
            if hold is None:
                return
            recording.note_pushed(hold)
            about = {"n": list(hold.names), "tok": digest(hold.token), "fence": hold.fence}
            self.writer.write("open", **about, t=clock(), rd=hold.renew_deadline)
            async with hold:
                t = clock()
                if hold.held:
                    self.writer.write("act", tok=about["tok"], t=t)
                await hold.asleep(self.random.uniform(0, 0.01))

        tasks = [asyncio.create_task(one()) for _ in range(self.spec.get("crowd", 60))]
        for task in self.random.sample(tasks, len(tasks) // 3):
            await asyncio.sleep(self.random.uniform(0, 0.01))
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError | ClaimError):
                raise outcome

    def starve(self) -> None:
        """Let no other thread run for longer than the lease lives."""
        hold = self.claim().acquire()
        if hold:
            with self.opened(hold):
                self.work(hold, 0.01)
                ends = clock() + self.random.uniform(0.5, 1.5) * self.ttl
                while clock() < ends:
                    sys.setswitchinterval(100)
                sys.setswitchinterval(0.005)
                self.work(hold, 0.01)


def publish(spec: dict[str, Any], holds: bool) -> None:
    """Let those who look for a holder find one."""
    path = Path(spec["dir"], f"holds-{os.getpid()}")
    with contextlib.suppress(OSError):
        if holds:
            path.touch()
        else:
            path.unlink(missing_ok=True)


class Inspector(Worker):
    """Looks at what is left when all have ended, and takes each name once more."""

    def run(self) -> None:
        while left := self.left():
            if clock() > self.spec["gone_by"]:
                break
            time.sleep(0.02)
        for lease in left:
            about = f"{lease.state}, fence {lease.fence}, of {lease.holder}, {lease.remaining:.1f} s left"
            after = clock() - self.spec["all_ended"]
            self.writer.write("left", n=[lease.name], t=clock(), after=after, lease=about)
        for name in self.names:
            if hold := patiently(lambda name=name: self.claim(name).acquire()):
                with self.opened(hold):
                    self.work(hold, 0.0)

    def left(self) -> list[Any]:
        from django_claims import list_claims

        return patiently(lambda: [lease for lease in list_claims() if lease.name in self.names])


def patiently(ask: Callable[[], Any]) -> Any:
    """Ask again where a store that was hurt gives no answer yet."""
    from django_claims import BackendUnavailable

    ends = clock() + 10
    while True:
        try:
            return ask()
        except BackendUnavailable:
            if clock() > ends:
                raise
            time.sleep(0.1)

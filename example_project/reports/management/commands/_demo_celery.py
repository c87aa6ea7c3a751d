"""What `demo --celery` shows: one worker, two beats, and the death of one of them."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, NamedTuple

from django.conf import settings
from django.core.management import call_command
from example.celery import app

from django_claims import Lease, claim
from reports.management.commands._demo_processes import CELERY, DemoFailure, Run, wait_for
from reports.management.commands._demo_steps import Story, expect, pid_of

BEAT = "beat:example"
TASKS = ("reports.tasks.add_up", "reports.tasks.tidy_reports")
TICK = 2.0  # seconds, of CELERY_BEAT_SCHEDULE
PATIENCE = 60.0


class Sent(NamedTuple):
    """One message, by which beat, and when it was sent."""

    task: str
    pid: int
    at: float


class Ran(NamedTuple):
    """One run of a task that came to its end, from when to when."""

    task: str
    began: float
    ended: float


class Watch(threading.Thread):
    """Hears what Celery tells about its tasks."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.sent: list[Sent] = []
        self.ran: list[Ran] = []
        self.skipped = 0
        self._names: dict[str, str] = {}
        self._receiver: Any = None

    def run(self) -> None:
        with app.connection_for_read() as connection:
            handlers = {"task-sent": self.on_sent, "task-succeeded": self.on_succeeded}
            self._receiver = app.events.Receiver(connection, handlers=handlers)
            while not self._receiver.should_stop:
                try:
                    self._receiver.capture(limit=None, timeout=1, wakeup=False)
                except TimeoutError:  # nothing was told for a second
                    continue

    def on_sent(self, event: dict[str, Any]) -> None:
        self._names[event["uuid"]] = event["name"]
        self.sent.append(Sent(event["name"], event["pid"], event["timestamp"]))

    def on_succeeded(self, event: dict[str, Any]) -> None:
        if "'skipped'" in event["result"]:
            self.skipped += 1
        else:
            ended = event["timestamp"]
            self.ran.append(Ran(self._names.get(event["uuid"], "?"), ended - event["runtime"], ended))

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.should_stop = True
        self.join(5)

    def by(self, pid: int, task: str = TASKS[0]) -> list[Sent]:
        return [sent for sent in list(self.sent) if (sent.pid, sent.task) == (pid, task)]


class CelerySteps(Story):
    """The steps, in order."""

    def run(self) -> None:
        """Take all steps."""
        watch = Watch()
        watch.start()
        try:
            self._begin("1. One worker and two beats")
            active, standby = self.start()
            self._begin("2. The active beat sends, the other one stands by")
            self.send(watch, active, standby)
            self._begin("3. Tasks that take longer than a tick do not overlap")
            self.overlap(watch)
            self._begin("4. The active beat is killed")
            self.kill(watch, active, standby)
            self._begin("5. An end in order")
            self.end(standby)
            self._say("Done: every step came out as it must.")
        finally:
            watch.close()

    def start(self) -> tuple[Run, Run]:
        """Start all three; return the active beat and the other."""
        call_command("migrate", verbosity=0)
        self._worker = self._celery("worker", "--pool", "threads", "--concurrency", "4")
        beats = [self._celery("beat"), self._celery("beat")]
        self._say(f"Started a worker, pid {self._worker.pid}, and two beats, pids {beats[0].pid} and {beats[1].pid}.")
        lease = self._lease_of(beats)
        active, standby = sorted(beats, key=lambda beat: beat.pid != pid_of(lease))
        self._say(f"Beat {active.pid} is active: it has the claim {BEAT!r}, fence {lease.fence}.")
        return active, standby

    def send(self, watch: Watch, active: Run, standby: Run) -> None:
        """Watch it for some ticks."""
        wait_for(lambda: all(len(watch.by(active.pid, task)) >= 5 for task in TASKS) or None, PATIENCE, "five ticks")
        expect(not watch.by(standby.pid), f"Beat {standby.pid} has sent something, too.")
        for task in TASKS:
            sent = watch.by(active.pid, task)
            gaps = [later.at - sooner.at for sooner, later in itertools.pairwise(sent)]
            self._say(
                f"{task}: sent {len(sent)} times, {min(gaps):.1f} to {max(gaps):.1f} s apart; a tick is {TICK} s."
            )

    def overlap(self, watch: Watch) -> None:
        """A task is sent while it still runs: that run is skipped."""
        wait_for(lambda: (len(watch.ran) >= 3 and watch.skipped >= 2) or None, PATIENCE, "runs, and some left out")
        for task in TASKS:
            runs = sorted(ran for ran in list(watch.ran) if ran.task == task)
            for sooner, later in itertools.pairwise(runs):
                expect(later.began >= sooner.ended - 0.2, f"Two runs of {task} overlapped.")
        took = settings.EXAMPLE_TASK_SECONDS
        self._say(
            f"A run takes {took} s: {len(watch.ran)} ran to their end, none beside another of its task; "
            f"{watch.skipped} were skipped, as one was running."
        )

    def kill(self, watch: Watch, active: Run, standby: Run) -> None:
        """Kill it between two ticks: the next tick comes from the other one, once."""
        count = len(watch.by(active.pid))
        wait_for(lambda: len(watch.by(active.pid)) > count or None, PATIENCE, "the next tick")
        time.sleep(TICK / 4)
        active.kill()
        self._say(f"Killed beat {active.pid} with SIGKILL, half a second after it had sent.")
        lease = self._lease_of([standby])
        self._say(f"Beat {standby.pid} has the claim, fence {lease.fence}.")
        wait_for(lambda: all(len(watch.by(standby.pid, task)) >= 4 for task in TASKS) or None, PATIENCE, "four ticks")
        for task in TASKS:
            last, first = watch.by(active.pid, task)[-1], watch.by(standby.pid, task)[0]
            gap = first.at - last.at
            expect(gap > TICK / 2, f"{task} was sent twice in one tick: {gap:.1f} s apart.")
            expect(gap < TICK + 20, f"{task} was not sent for {gap:.1f} s.")
            self._say(f"{task}: the last send of the one and the first of the other are {gap:.1f} s apart.")

    def end(self, standby: Run) -> None:
        """End what is left; nothing stays behind."""
        standby.end(PATIENCE)
        expect(claim(BEAT).lease() is None, "The claim of beat is still held.")
        self._say(f"Beat {standby.pid} ended with exit code 0 on SIGTERM, and its claim is free.")
        self._worker.end(PATIENCE)
        for task in TASKS:
            expect(claim(f"task:{task}").lease() is None, f"The claim of {task} is still held.")
        self._say("So did the worker, when its tasks were done.")

    def _celery(self, *arguments: str) -> Run:
        return self._runs.start(*arguments, program=CELERY)

    def _lease_of(self, beats: list[Run]) -> Lease:
        """Wait until one of them is active, and return its lease."""

        def look() -> Lease | None:
            for run in (*beats, self._worker):
                if run.has_ended:
                    code = run.finish(10)
                    raise DemoFailure(f"'{run.command}' (pid {run.pid}) ended with exit code {code}:\n{run.printed}")
            lease = claim(BEAT).lease()
            return lease if lease is not None and pid_of(lease) in [beat.pid for beat in beats] else None

        return wait_for(look, PATIENCE, f"beat {' or '.join(str(beat.pid) for beat in beats)} to be active")

"""What the demo shows, step by step. Each step raises DemoFailure unless it comes out as it must."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.conf import settings
from django.core.management import call_command

from django_claims import Lease, claim, request_stop, stop_flag
from reports.management.commands._demo_processes import DemoFailure, Run, Runs, wait_for
from reports.models import Customer, Order, Report

REPORT = "command:reports.nightly_report"
IMPORT = "import-orders"
ROWS = 300  # of reports/data/orders.csv


class Story:
    """What is told of the steps, with the time; they share the processes that they start."""

    def __init__(self, runs: Runs, write: Callable[[str], object]) -> None:
        self._runs = runs
        self._write = write
        self._began = time.monotonic()
        self.title = ""

    def _begin(self, title: str) -> None:
        self.title = title
        self._write(f"\n{title}")

    def _say(self, text: str) -> None:
        self._write(f"{time.monotonic() - self._began:04.1f} s  {text}")


class Steps(Story):
    """The steps, in order."""

    _stopped_fence = 0
    _long = _patience = 0.0

    def run(self) -> None:
        """Take all steps."""
        self._begin("Orders to work on")
        self.seed()
        self._begin("1. Three processes race for the nightly report")
        self.race()
        self._begin("2. A process dies in the middle of it")
        self.take_over()
        self._begin("3. Somebody stops the import")
        self.stop()
        self._begin("4. The next import is not stopped by that")
        self.run_again()
        self._say("Done: every step came out as it must.")

    def seed(self) -> None:
        """Make the tables and the orders, and measure how long this machine takes to start one process."""
        call_command("migrate", verbosity=0)
        began = time.monotonic()
        run = self._runs.start("seed")
        run.must_exit(0, 60)
        startup = time.monotonic() - began
        # A slow or busy machine gets longer runs, so that they still overlap, and more patience.
        self._long = max(3.0, 3 * startup)
        self._patience = max(20.0, 20 * startup)
        store = settings.CLAIMS["default"]["BACKEND"].rpartition(".")[2]
        self._say(f"{run.output.strip()} The claims are kept by {store}.")

    def race(self) -> None:
        """Start three at once: one runs, two say who has it."""
        reports = Report.objects.count()
        racers = [self._report(self._long) for _ in range(3)]
        self._say(f"Started three, pids {', '.join(str(racer.pid) for racer in racers)}.")
        lease = self._lease_of(REPORT, racers)
        winner = next(racer for racer in racers if racer.pid == pid_of(lease))
        losers = [racer for racer in racers if racer is not winner]
        self._say(f"Process {winner.pid} has the claim, fence {lease.fence}.")
        for loser in losers:
            loser.must_exit(75, self._patience)
            sentence = loser.line_with("is held by")
            expect(f"pid {winner.pid}" in sentence, f"Process {loser.pid} named another holder: {sentence}")
            self._say(f"Process {loser.pid} ended with exit code 75 and said:\n        {sentence}")
        winner.must_exit(0, self._long + self._patience)
        made = Report.objects.count() - reports
        expect(made == 1, f"{made} reports were stored instead of one.")
        self._say(f"Process {winner.pid} ended with exit code 0: {winner.line_with('Stored report')}")

    def take_over(self) -> None:
        """Kill a holder: the next one need not wait until its lease has run out."""
        victim = self._report(600)
        old = self._lease_of(REPORT, [victim])
        self._say(f"Process {victim.pid} has the claim, fence {old.fence}. Killing it with SIGKILL.")
        victim.kill()
        left = claim(REPORT).lease()
        expect(left is not None and left.fence == old.fence, "The dead process's lease is gone: nothing to take over.")
        killed = time.monotonic()
        self._say(f"Its lease would live for {left.remaining:.0f} s more. Starting another process.")
        heir = self._report(self._long / 2)
        new = self._lease_of(REPORT, [heir], after=old.fence)
        took = time.monotonic() - killed
        expect(took < left.remaining / 2, f"It took over only after {took:.1f} s.")
        self._say(f"Process {heir.pid} has it {took:.1f} s later, its own start included; fence {new.fence} is larger.")
        heir.must_exit(0, self._long + self._patience)
        self._say(f"Process {heir.pid} ended with exit code 0: {heir.line_with('Stored report')}")

    def stop(self) -> None:
        """Stop an import that says how far it is: it ends in order, with the rows that it has."""
        before = imported()
        run = self._runs.start("import_orders", "--pause", "0.1")
        self._say(f"Started it, pid {run.pid}, and waiting for it to say how far it is.")
        lease = self._lease_of(IMPORT, [run], where=lambda lease: lease.progress is not None)
        self._say(f"It says: {lease.progress.done} of {lease.progress.total} rows. Asking it to stop.")
        asked = time.monotonic()
        flag = request_stop(IMPORT, reason="wrong file", by="the demo")
        expect(flag is not None and flag.fence == lease.fence, f"The request hit another run: {flag}")
        run.must_exit(0, self._patience)
        took = time.monotonic() - asked
        done = int(run.line_with("Stopped after").split()[2])
        expect(0 < done < ROWS, f"It stopped after {done} of {ROWS} rows.")
        rows = imported()
        expect(rows == max(before, done), f"It says {done} rows, the database has {rows}.")
        self._say(f"It ended {took:.1f} s later with exit code 0 and said:")
        for line in run.output.splitlines():
            self._write(f"        {line}")
        expect(stop_flag(IMPORT) is None, "The stop flag is still there.")
        expect(claim(IMPORT).lease() is None, "The claim is still held.")
        self._say(f"The database has its {rows} rows; the stop flag is gone, and the claim is free.")
        self._stopped_fence = lease.fence

    def run_again(self) -> None:
        """Run the import again; not even a late second press of the same Stop button hits it."""
        run = self._runs.start("import_orders", "--pause", f"{self._long / 2 / ROWS:.4f}")
        lease = self._lease_of(IMPORT, [run], after=self._stopped_fence)
        self._say(f"Process {run.pid} has the claim, fence {lease.fence}.")
        late = request_stop(IMPORT, fence=self._stopped_fence, reason="pressed twice", by="the demo")
        expect(late is None, f"A request to stop the old run was taken for the new one: {late}")
        self._say(f"Asked run {self._stopped_fence} to stop once more: that run is over, so nobody is stopped.")
        run.must_exit(0, self._long + self._patience)
        rows = imported()
        said = run.line_with(f"Imported {ROWS} rows.")
        expect(rows == ROWS, f"The database has {rows} rows of the file instead of {ROWS}.")
        self._say(f"Process {run.pid} ended with exit code 0: {said}")

    def _report(self, seconds: float) -> Run:
        """Start a report that takes about so long."""
        pause = seconds / max(Customer.objects.count(), 1)
        return self._runs.start("nightly_report", "--pause", f"{pause:.4f}")

    def _lease_of(
        self, name: str, runs: list[Run], *, after: int = 0, where: Callable[[Lease], bool] = lambda lease: True
    ) -> Lease:
        """Wait until one of the runs has the claim by a fence after this one, and return its lease."""
        pids = [run.pid for run in runs]

        def look() -> Lease | None:
            lease = claim(name).lease()
            if lease is not None and pid_of(lease) in pids and lease.fence > after and where(lease):
                return lease
            if all(run.has_ended for run in runs):
                said = "\n".join(f"{run.pid} ({run.finish(10)}): {run.printed}" for run in runs)
                raise DemoFailure(f"Ended before it was seen to hold claim {name!r} as it should:\n{said}")
            return None

        return wait_for(look, self._patience, f"pid {' or '.join(map(str, pids))} to hold claim {name!r} as it should")


def pid_of(lease: Lease) -> int:
    """Return the pid of the holder, 0 if it is not known."""
    return lease.holder.pid if lease.holder else 0


def imported() -> int:
    """Return how many orders of the CSV file the database has."""
    return Order.objects.filter(number__startswith="C-").count()


def expect(true: bool, otherwise: str) -> None:
    """Fail the demo with this text unless it is true."""
    if not true:
        raise DemoFailure(otherwise)

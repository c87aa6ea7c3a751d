"""What every name may be."""

from __future__ import annotations

from django_claims.backends.base import (
    Released,
    Renewal,
)
from django_claims.holders import Holder
from django_claims.test.contract.asking import ODD_NAMES, Asking


class NameContract(Asking):
    """Names of all kinds."""

    def test_odd_names_are_claims_like_all_others(self) -> None:
        runs = [self.take(name, holder=Holder(host="h", pid=at)) for at, name in enumerate(ODD_NAMES)]

        for at, run in enumerate(runs):
            holder = self.read(run.name).holder
            assert holder is not None and holder.pid == at, run.name
            assert self.refusal(run.name).name == run.name
            assert self.renew(run).outcome is Renewal.RENEWED, run.name
        assert sorted(self.listed()) == sorted(ODD_NAMES)
        for run in runs:
            assert self.release(run) is Released.RELEASED, run.name
        assert self.listed() == []

    def test_odd_names_can_be_stopped_and_force_released(self) -> None:
        runs = [self.take(name) for name in ODD_NAMES]

        for at, run in enumerate(runs):
            flag = self.ask_to_stop(run.name, reason=str(at))
            assert flag is not None and flag.fence == run.fence, run.name
        for at, run in enumerate(runs):
            flag = self.renew(run).flag
            assert flag is not None and (flag.name, flag.reason) == (run.name, str(at)), run.name
        assert [flag.name for flag in self.backend.flags()] == sorted(ODD_NAMES)
        for run in runs:
            assert self.backend.force_release(run.name, run.fence) is True, run.name
        assert self.forced() == {(run.name, run.fence) for run in runs}
        assert self.backend.flags() == []

    def test_names_that_differ_in_little_are_different_claims(self) -> None:
        pairs = [
            ("x" * 499 + "a", "x" * 499 + "b"),
            ("\N{PARTY POPPER}" * 499 + "a", "\N{PARTY POPPER}" * 499 + "b"),
            ("job", "Job"),
            ("jób", "job"),
            ("j\N{LATIN SMALL LETTER O WITH ACUTE}b 2", "jo\N{COMBINING ACUTE ACCENT}b 2"),
            ("straße", "strasse"),
            ("a b", "a  b"),
            ("a b 2", "a\N{NO-BREAK SPACE}b 2"),
            ("a/b", "a//b"),
            ("1", "01"),
            ("k", "\N{KELVIN SIGN}"),
        ]
        for first, second in pairs:
            mine, theirs = self.take(first), self.take(second)

            self.ask_to_stop(first)
            assert self.backend.flag(second) is None, second
            assert self.release(mine) is Released.RELEASED
            assert self.backend.held(second, theirs.token) is True, second
            assert self.backend.lease(first) is None, first

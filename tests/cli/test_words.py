"""What is printed can be read by people, and pasted into a shell."""

import subprocess

import pytest

from django_claims.cli.asking import duration
from django_claims.cli.words import clean, command_line, progress, quoted, table, width
from django_claims.leases import Progress

NAMES = [
    "nightly-report",
    "command:night.report",
    "a b",
    "import:'acme'",
    'say "hi"',
    """it's "so" """ + "$HOME",
    "back\\slash",
    "$(touch x)",
    "`id`",
    "!!",
    "ünï",
    "bidi\u202eevil",
    "line\u2028sep'quote\\",
    "*",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_is_read_back_by_the_shell(name):
    done = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(name)}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )

    assert done.stdout.decode() == name
    assert quoted(name).isprintable()


@pytest.mark.parametrize(("name", "shown"), [("a:b.c-d_1", "a:b.c-d_1"), ("import:'acme'", "\"import:'acme'\"")])
def test_a_name_is_quoted_no_more_than_it_needs(name, shown):
    assert quoted(name) == shown


def test_a_line_to_paste_names_the_alias_and_survives_a_dash():
    assert command_line("show", "a") == "manage.py claims show a"
    assert (
        command_line("release", "a", "--fence 4", using="b c") == "manage.py claims release a --fence 4 --using 'b c'"
    )
    assert command_line("release", "-a", "--fence 4") == "manage.py claims release --fence 4 -- -a"


def test_control_characters_are_spelled_out():
    assert clean("a\nb\x1b[31mc\u202ed\U000e0001") == "a\\x0ab\\x1b[31mc\\u202ed\\U000e0001"


def test_columns_align_also_with_wide_and_combining_characters():
    lines = table(("A", "B"), [["日本", "x"], ["e\u0301", "y\nz"]], {})

    assert [width(line[: line.index(end)]) for line, end in zip(lines, "Bxy", strict=True)] == [6, 6, 6]
    assert lines[2].endswith("y\\x0az")


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (None, "-"),
        (Progress(), "-"),
        (Progress(done=3), "3"),
        (Progress(done=3, total=12), "3 of 12 (25 %)"),
        (Progress(done=1.5, total=0), "1.5 of 0"),
        (Progress(note="rows\x07"), "rows\\x07"),
        (Progress(done=10**30, total="x\n"), "1" + "0" * 30 + " of x\\x0a"),
    ],
)
def test_progress_in_words(kept, words):
    assert progress(kept) == words


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1.5 h", 5400), ("0", 0)]
)
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1", "1w", "1h30m", "inf", "nan", "٣"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(Exception, match="is no duration"):
        duration(text)

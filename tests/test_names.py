"""What a claim may be called, and how keys are written."""

import datetime as dt
import decimal
import enum
import re
import unicodedata
import uuid
from zoneinfo import ZoneInfo

import pytest
from django.db import models

from django_claims import InvalidClaim, claim
from django_claims.names import MARK, MAX_LENGTH, checked, cut, mark_of, matches, text, with_key


class Shop(models.Model):
    class Meta:
        app_label = "names_tests"

    def __str__(self):
        return "the same text for all"


class Branch(models.Model):
    class Meta:
        app_label = "names_tests"

    def __str__(self):
        return "the same text for all"


class ProxyShop(Shop):
    class Meta:
        app_label = "names_tests"
        proxy = True


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Kind(models.TextChoices):
    BIG = "big"


class Number(enum.IntEnum):
    ONE = 1


class Text(str, enum.Enum):  # noqa: UP042  # as older code has it: Python writes it by its member's name
    RED = "red"


@pytest.mark.parametrize(
    "name",
    [
        "x", "nightly report", "a:b", "a\\b/c", "x" * 500, "\N{SNOWMAN}" * 130, "Grüße", "{tag}", "%s",
        "'quoted'", "日報",
        "a\N{RIGHT-TO-LEFT MARK}b", "a\N{NO-BREAK SPACE}b",
    ],
)  # fmt: skip
def test_a_name_of_printable_text_is_taken_as_it_is(name):
    assert checked(name) == name
    assert claim(name).name == name


@pytest.mark.parametrize(
    "name", ["", " ", " x", "x ", "x\t", "\nx", "a\nb", "a\x00b", "a\x7fb", "a\x85b", "\ud800", "x" * 501]
)
def test_a_name_that_some_store_could_not_keep_is_refused_for_all(name):
    with pytest.raises(InvalidClaim):
        claim(name)


@pytest.mark.parametrize("name", [None, 5, b"x", ["x"], object])
def test_a_name_that_is_not_text_is_refused_by_its_value(name):
    with pytest.raises(InvalidClaim, match=re.escape(repr(name))):
        claim(name)


def test_a_name_that_is_too_long_is_told_its_length_and_the_way_out():
    with pytest.raises(InvalidClaim, match=r"at most 500 characters.* has 501.*key="):
        claim("x" * 501)


def test_the_refused_character_is_named():
    with pytest.raises(InvalidClaim, match=re.escape(r"'\x00'")):
        claim("a\x00b")


def test_names_that_look_alike_are_two_names():
    composed, decomposed = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")

    names = {claim(name).name for name in ("a", "A", composed, decomposed, "a b", "a  b")}

    assert len(names) == 6


def test_no_key_leaves_the_name_alone():
    assert claim("x", key=None).name == "x"


@pytest.mark.parametrize(
    "key, written",
    [
        (1, "1"),
        (-7, "-7"),
        ("1", "'1'"),
        (True, "bool=True"),
        (1.0, "float=1.0"),
        (decimal.Decimal("1.50"), "decimal=1.5"),
        (uuid.UUID(int=5), "uuid=00000000-0000-0000-0000-000000000005"),
        (dt.date(2026, 1, 2), "date=2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "datetime=2026-01-02T03:00:00+00:00"),
        (dt.time(4, 5), "time=04:05:00"),
        (dt.timedelta(minutes=1), "timedelta=60.0"),
        (b"\x00\xff", "bytes=00ff"),
        (("a", 1), "'a',1"),
        ((None,), "none"),
        ([1, 2], "list(1,2)"),
        (((1, 2), 3), "tuple(1,2),3"),
        ({2, 1}, "set(1,2)"),
        ({"b": 2, "a": 1}, "dict('a':1,'b':2)"),
        (Shop(pk=3), "names_tests.shop=3"),
        (Colour.RED, f"{__name__}.Colour.RED"),
        ("Grüße", "'Grüße'"),
        ("it's", "'it%27s'"),
        ("a\nb", "'a%0Ab'"),
    ],
)
def test_a_key_is_written_after_the_name_in_a_stable_form(key, written):
    assert claim("import", key=key).name == f"import:{written}"


def test_different_keys_never_share_a_name():
    keys = [
        1, "1", True, "True", 1.0, "float=1.0", decimal.Decimal(2), "2", b"1", "bytes=31", (1, 2), "1,2",
        ("a", "b"), "a','b", ("a,b",), [1, 2], ((1, 2),), {1, 2}, {1: 2}, None, "none", (None, None), (None,), "", " ",
        "a#b", "a%23b", "a", ("a", None), Shop(pk=1), Branch(pk=1), Shop(pk=2), "names_tests.shop=1",
        uuid.UUID(int=1), str(uuid.UUID(int=1)), dt.date(2026, 1, 1), dt.datetime(2026, 1, 1), "2026-01-01",
        dt.timedelta(days=1), dt.time(0), 0, False, 86400.0, Colour.RED, Colour.BLUE, "red",
    ]  # fmt: skip

    names = [claim("x", key=key).name for key in keys]

    assert len(set(names)) == len(keys)


def test_the_same_key_in_another_spelling_is_the_same_name():
    def name(key):
        return claim("x", key=key).name

    assert name({"a": 1, "b": 2}) == name({"b": 2, "a": 1})
    assert name({3, 1, 2}) == name(frozenset([2, 3, 1]))
    assert name(decimal.Decimal("1.0")) == name(decimal.Decimal("1.00"))
    assert name((5,)) == name(5)
    assert name(Kind.BIG) == name("big")
    assert name(Text.RED) == name("red")
    assert name(Number.ONE) == name(1)
    assert name(-0.0) == name(0.0)
    assert name(ProxyShop(pk=1)) == name(Shop(pk=1))


def test_one_moment_is_one_name_in_whatever_zone_it_is_given():
    stored = dt.datetime(2026, 6, 1, 10, tzinfo=dt.UTC)
    typed = stored.astimezone(ZoneInfo("Europe/Berlin"))
    first_of_all = dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))  # UTC has none such

    assert claim("x", key=typed).name == claim("x", key=stored).name
    assert claim("x", key=stored.replace(tzinfo=None)).name != claim("x", key=stored).name
    assert claim("x", key=first_of_all).name == "x:datetime=0001-01-01T00:00:00+01:00"


def test_two_decimals_that_differ_late_are_two_names():
    one, other = decimal.Decimal("1." + "0" * 40 + "1"), decimal.Decimal("1." + "0" * 40 + "2")

    assert claim("x", key=one).name != claim("x", key=other).name


def test_a_decimal_is_written_the_same_whatever_the_precision_of_the_moment():
    value = decimal.Decimal("1234.5678")
    before = claim("x", key=value).name

    with decimal.localcontext() as context:
        context.prec = 3
        within = claim("x", key=value).name

    assert within == before


def test_a_moment_in_two_zones_is_written_with_its_offset():
    moment = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))

    names = {claim("x", key=moment.replace(fold=fold)).name for fold in (0, 1)}

    assert len(names) == 2  # summer time and winter time


def test_a_model_instance_that_is_not_saved_is_refused():
    with pytest.raises(InvalidClaim, match="not saved"):
        claim("x", key=Shop())


@pytest.mark.parametrize(
    "key", [object(), lambda: None, Shop, bytearray(b"x"), range(3), (1, object()), {"a": object()}]
)
def test_a_key_without_identity_is_refused_with_the_way_out(key):
    with pytest.raises(InvalidClaim, match=r"no identity of its own.*key=str\(obj\.slug\)"):
        claim("x", key=key)


def test_an_empty_tuple_is_no_key():
    with pytest.raises(InvalidClaim, match="empty tuple"):
        claim("x", key=())


def test_a_long_key_ends_in_a_digest_of_all_of_it():
    keys = ["a" * 1000, "a" * 1001, "a" * 999 + "b", ("a" * 500, "a" * 500)]

    names = [claim("import", key=key).name for key in keys]

    assert len(set(names)) == 4
    assert all(len(name) == MAX_LENGTH and name.startswith("import:'aaaa") for name in names)
    assert all(re.search(r"#[0-9a-f]{32}$", name) for name in names)
    assert names[0] == claim("import", key="a" * 1000).name


def test_a_short_key_cannot_imitate_a_long_one():
    long = claim("x", key="a" * 1000).name

    imitation = claim("x", key=long.removeprefix("x:'")).name

    assert imitation != long


def test_a_name_that_leaves_no_room_for_a_key_is_refused():
    with pytest.raises(InvalidClaim, match="too long to take a key"):
        with_key("n" * 490, "k" * 100)


def test_a_glob_fits_names_and_minds_case():
    assert matches("import:1", "import:*")
    assert matches("anything", "")
    assert not matches("Import:1", "import:*")


def test_a_mark_is_no_name_of_a_claim_and_no_longer_than_one():
    with pytest.raises(InvalidClaim):
        checked(MARK + "x")
    assert not matches(mark_of("x"), "")
    assert len({mark_of("n" * length) for length in (498, 499, 500)}) == 3
    assert all(len(mark_of("n" * length)) <= MAX_LENGTH for length in (499, 500))


@pytest.mark.parametrize("value", [None, 5, b"x", ["x"]], ids=repr)
def test_what_should_be_text_and_is_none_is_refused_by_its_value(value):
    with pytest.raises(InvalidClaim, match=re.escape(f"by should be text, not {value!r}.")):
        text(value, "by")


def test_text_is_cut_and_put_on_one_line():
    assert cut("  a\n\tb  ") == "a b"
    assert len(cut("x" * 300)) == 200
    assert len(cut("x" * 900, 500)) == 500


def test_decimals_that_are_nothing_or_without_end_have_one_form_each():
    name = with_key
    assert name("x", decimal.Decimal("0.00")) == name("x", decimal.Decimal("-0")) != name("x", 0)
    assert name("x", decimal.Decimal("Infinity")) != name("x", decimal.Decimal("-Infinity"))

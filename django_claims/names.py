"""
What a claim is called, and how a key is written after its name.

Two different names never share a claim: nothing is folded, cut or trimmed. What no store
could keep apart (control characters, blank edges) is refused here, for every store alike.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fnmatch
import hashlib
import re
import unicodedata
import uuid
from typing import Any
from urllib.parse import quote

from django.core.exceptions import ValidationError
from django.db import models

from django_claims.exceptions import InvalidClaim

MAX_LENGTH = 500
MARK = "\x1f"
"""Begins the names of marks, which lie among the leases and are none: no claim is called so, no listing shows it."""

LABEL_LENGTH = 200
REASON_LENGTH = 500

_HOW_TO_NAME = "Pass text or a number that identifies it, for example key=str(obj.slug)."


def checked(name: object) -> str:
    """Return the name if a claim may be called so, else raise InvalidClaim."""
    if not isinstance(name, str):
        raise InvalidClaim(f"A claim's name should be text, not {name!r}.")
    if not name:
        raise InvalidClaim("A claim's name should not be empty: ''.")
    if len(name) > MAX_LENGTH:
        raise InvalidClaim(
            f"A claim's name should have at most {MAX_LENGTH} characters; {name[:40]!r}… has {len(name)}. "
            f"Put what makes it long into key=, which is shortened by a digest."
        )
    if name != name.strip():
        raise InvalidClaim(f"A claim's name should not begin or end with a blank: {name!r}.")
    if not name.isprintable():
        for char in name:
            # Cc: control characters. Cs: half characters that no store can encode.
            if unicodedata.category(char) in ("Cc", "Cs"):
                raise InvalidClaim(f"A claim's name should not hold the character {char!r}: {name!r}.")
    return name


def with_key(name: str, key: object) -> str:
    """Return the name of the claim on one thing: the name, a colon, the key in a stable form."""
    if key is None:
        return name
    parts = key if isinstance(key, tuple) else (key,)
    if not parts:
        raise InvalidClaim(f"The key of claim {name!r} is an empty tuple. {_HOW_TO_NAME}")
    written = ",".join(_written(part, name) for part in parts)
    whole = f"{name}:{written}"
    if len(whole) <= MAX_LENGTH:
        return whole
    # The digest covers the whole key, so that what was cut still tells two names apart. The sign
    # before it is one that no written key holds, so that no short key can imitate a long one.
    ending = "#" + hashlib.sha256(written.encode()).hexdigest()[:32]
    room = MAX_LENGTH - len(ending)
    if len(name) + 1 > room:
        raise InvalidClaim(f"The name {name[:40]!r}… is too long to take a key after it; shorten it.")
    return whole[:room] + ending


_KEY_BEGINS = re.compile(r":(?=['\d-]|[\w.]+[=(]|none(?:,|$))")


def group_of(name: str) -> str:
    """
    Return the name without its key, as far as can be told: what all claims of one kind share.

    For metrics, which need few labels. Limit: names that hold colons and numbers of their own
    are cut there.
    """
    return _KEY_BEGINS.split(name, maxsplit=1)[0] or name


def _written(value: Any, name: str) -> str:
    """Return one part of a key as text that no other value has."""
    match value:
        case bool():  # before int: True is not 1
            return f"bool={value}"
        case models.Model():
            key = primary_key(value)
            label = value._meta.concrete_model._meta.label_lower  # type: ignore[union-attr]  # an instance has one
            return f"{label}={_written(key[0] if len(key) == 1 else key, name)}"
        case str():
            plain = str.__str__(value)  # of an enum of text too, which Python would write by its member's name
            return f"'{plain}'" if _plain(plain) else f"'{quote(plain, safe=' ', errors='surrogatepass')}'"
        case int():
            return str(int(value))
        case enum.Enum():  # after str and int: a TextChoices member is the text that it stands for
            return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
        case float():
            return f"float={float(value) + 0.0!r}"  # minus zero is zero
        case decimal.Decimal():
            return f"decimal={_written_decimal(value)}"
        case uuid.UUID():
            return f"uuid={value}"
        case dt.datetime():  # before date: every datetime is one
            return f"datetime={_in_utc(value).isoformat()}"
        case dt.date():
            return f"date={value.isoformat()}"
        case dt.time():
            return f"time={value.isoformat()}"
        case dt.timedelta():
            return f"timedelta={value.total_seconds()!r}"
        case bytes():
            return f"bytes={value.hex()}"
        case None:
            return "none"
        case tuple() | list():
            kind = "tuple" if isinstance(value, tuple) else "list"
            return f"{kind}({','.join(_written(item, name) for item in value)})"
        case set() | frozenset():
            return f"set({','.join(sorted(_written(item, name) for item in value))})"
        case dict():
            pairs = sorted(f"{_written(k, name)}:{_written(v, name)}" for k, v in value.items())
            return f"dict({','.join(pairs)})"
    raise InvalidClaim(f"The key of claim {name!r} holds {value!r}, which has no identity of its own. {_HOW_TO_NAME}")


def primary_key(instance: models.Model) -> tuple[Any, ...]:
    """
    Return the parts of a saved instance's primary key, as the columns have them.

    A key that came as text out of an address names the same row. Raises InvalidClaim for an
    instance that is not saved.
    """
    meta = instance._meta
    parts = instance.pk if isinstance(instance.pk, tuple) else (instance.pk,)
    if None in parts:
        raise InvalidClaim(
            f"This {meta.label} is not saved, so it has no primary key to be named by. Save it first, "
            f"or name what it will be, for example claim('new-{meta.model_name}', key=...)."
        )
    try:
        return tuple(field.to_python(part) for field, part in zip(meta.pk_fields, parts, strict=True))
    except ValidationError as error:
        raise InvalidClaim(f"{instance.pk!r} is no primary key of a {meta.label}. {_HOW_TO_NAME}") from error


def _written_decimal(value: decimal.Decimal) -> str:
    """Return a number in one form: 1.0 and 1.00 are the same. Exact, whatever the precision of the moment."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)  # infinity, or not a number
    while len(digits) > 1 and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    if digits in ((), (0,)):
        return "0"
    return str(decimal.Decimal((sign, digits, exponent))).upper()


def _in_utc(value: dt.datetime) -> dt.datetime:
    """Return one moment in one form: a form has it in the user's zone, and the database in UTC."""
    if value.utcoffset() is None:
        return value
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:  # at either end of the calendar
        return value


def _plain(text: str) -> bool:
    """Say whether text can stand between quotes as it is."""
    return text.isprintable() and not re.search(r"['%#]", text)


def digest(name: str) -> str:
    """Return 64 characters that stand for a name, where a store could not tell all names apart."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


def mark_of(name: str) -> str:
    """Return what a mark on a name is kept under: no longer than a name may be."""
    return MARK + (name if len(name) < MAX_LENGTH else digest(name))


def matches(name: str, glob: str) -> bool:
    """Say whether a name fits a glob; an empty glob fits all. Case counts. No glob fits a mark."""
    return not name.startswith(MARK) and (not glob or fnmatch.fnmatchcase(name, glob))


def text(value: object, what: str, length: int = LABEL_LENGTH) -> str:
    """Return what a caller gave as text, on one line and cut; raise InvalidClaim if it is none."""
    if not isinstance(value, str):
        raise InvalidClaim(f"{what} should be text, not {value!r}.")
    return cut(value, length)


def cut(text: str, length: int = LABEL_LENGTH) -> str:
    """Return text on one line and no longer than the length."""
    return re.sub(r"\s+", " ", text).strip()[:length]

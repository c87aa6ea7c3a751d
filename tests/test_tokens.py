"""Secrets that error pages do not show."""

import json

from django_claims.backends.base import new_token
from django_claims.tickets import new_ticket
from django_claims.tokens import Packed, Token


def test_a_token_is_its_text_but_where_variables_are_shown():
    token = Token("s3cret")

    assert token == "s3cret" and {token: 1}["s3cret"] == 1
    assert f"{token} {token!s}" == "s3cret s3cret"
    assert json.dumps([token]) == '["s3cret"]'
    assert "s3cret" not in repr(token) + repr([token]) + repr({"token": token}) + f"{token!r}"


def test_a_packed_request_is_its_bytes_but_where_variables_are_shown():
    packed = Packed(b"s3cret")

    assert packed == b"s3cret"
    assert repr([packed]) == "[<6 bytes>]"


def test_all_that_owns_a_lease_is_such_a_token():
    ticket = new_ticket(("x",), 7)

    assert [type(secret) for secret in (new_token(), ticket.secret, ticket.digest)] == [Token] * 3

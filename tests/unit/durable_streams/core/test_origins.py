"""Hosts and origins are told apart, and any text is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core.origins import (
    Host,
    is_own_origin,
    parse_host,
    parse_origin,
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Shop.example:80", Host("shop.example", "80")),
        ("shop.example.", Host("shop.example", None)),
        ("[::1]:4437", Host("::1", "4437")),
        ("127.0.0.1", Host("127.0.0.1", None)),
        ("shop.example:99999", None),
        ("user@shop.example", None),
        ("shop.example/", None),
        ("[", None),
        ("", None),
        ("a" * 300, None),
    ],
)
def test_a_host_has_a_name_and_a_port(text: str, host: Host | None) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("127.0.0.1:4437", True),
        ("[::1]", True),
        ("localhost", True),
        ("app.localhost", True),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("2130706433", False),
    ],
)
def test_no_site_can_lead_addresses_elsewhere(text: str, fixed: bool) -> None:
    host = parse_host(text)
    assert host is not None
    assert host.is_fixed is fixed


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://127.0.0.1:4437", "127.0.0.1:4437", True),
        ("https://shop.example", "shop.example", True),
        ("https://shop.example", "shop.example:443", True),
        ("https://SHOP.example:443", "shop.example", True),
        ("http://127.0.0.1:8000", "127.0.0.1:4437", False),
        ("http://127.0.0.1", "127.0.0.1:4437", False),
        ("http://evil.example", "shop.example", False),
        ("null", "null", False),
        ("file://", "", False),
    ],
)
def test_its_own_page_has_its_host(origin: str, host: str, own: bool) -> None:
    assert is_own_origin(origin, host) is own


@given(st.text(), st.text())
def test_any_text_is_taken(origin: str, host: str) -> None:
    parse_origin(origin)
    parse_origin(f"http://{origin}")
    parse_host(host)
    is_own_origin(f"http://{origin}", host)

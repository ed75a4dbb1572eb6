from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import TLS, Client, ClientOptions, InvalidRequest
from liftbridge_aio._client.server_url import parse_servers, split_servers


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("liftbridge://a", ["a:9292"]),
        ("LIFTBRIDGE://a:1,b:2/", ["a:1", "b:2"]),
        ("liftbridge://[::1]:1,10.0.0.1", ["[::1]:1", "10.0.0.1:9292"]),
        ("liftbridge+tls://a:1, b:2", ["a:1", "b:2"]),
    ],
)
def test_a_url_names_servers_and_whether_to_speak_tls(text: str, addresses: list[str]) -> None:
    servers = parse_servers([text])
    assert list(servers.addresses) == addresses
    assert servers.secure is ("tls" in text)
    assert servers.tls(None) == (TLS() if servers.secure else None)


def test_addresses_say_nothing_of_tls() -> None:
    servers = parse_servers(["a", "[::1]:1"])
    assert servers.addresses == ("a:9292", "[::1]:1")
    assert servers.tls(None) is None
    assert servers.tls(TLS(ca="ca.pem")) == TLS(ca="ca.pem")


def test_parameters_go_before_options() -> None:
    url = "liftbridge+tls://a?ca=my%20ca.pem&cert=c&key=k&server_name=n"
    everything = TLS(ca="my ca.pem", cert="c", key="k", server_name="n")
    assert parse_servers([url]).tls(None) == everything
    options = ClientOptions(tls=TLS(ca="other.pem", key_password="p"))  # noqa: S106
    client = Client(url, options=options)
    assert client.options.tls is not None
    assert client.options.tls.ca == "my ca.pem"
    assert client.options.tls.key_password == "p"  # noqa: S105
    assert repr(client) == "<Client liftbridge+tls://a:9292 new>"


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["https://a"], r"begins with liftbridge:// or liftbridge\+tls://, not https://: write"),
        (["a:1,b:2"], r"'a:1,b:2' is several addresses: pass each as an argument of its own"),
        (["localhost:abc"], "the port of 'localhost' must be a number"),
        (["liftbridge+tls://"], "names no server"),
        (["liftbridge+tls://a/stream"], "has no path"),
        (["liftbridge+tls://a#b"], "no fragment"),
        (["liftbridge+tls://a?verify=no"], "not 'verify'"),
        (["liftbridge+tls://a?ca=1&ca=2"], "names ca twice"),
        (["liftbridge+tls://a?ca="], "names ca without a value"),
        (["liftbridge+tls://a?ca"], "are not name=value"),
        (["liftbridge+tls://a?key=k"], "key requires cert"),
        (["liftbridge://a?ca=ca.pem"], "takes no parameters"),
        (["liftbridge://a", "liftbridge://b"], "one URL with all servers in it"),
        (["a", "liftbridge://b"], "one URL with all servers in it"),
        (["liftbridge://a:0"], "port"),
        (["liftbridge+tls://a?ca=1;cert=2"], "%3B for a semicolon"),
        (["liftbridge+tls://a?ca=1&"], "are not name=value"),
        (["liftbridge+tls://a?ca=%00"], "NUL"),
        (["liftbridge+tls://a?ca=%ff"], "are not UTF-8"),
        (["liftbridge+tls://a?server_name=.a"], "server_name must be a name"),
        (["liftbridge://a..b"], "'a..b' is not an address"),
        (["liftbridge://a:port"], "the port of 'a' must be a number"),
        (["a" * 64], "is not an address"),
    ],
)
def test_what_makes_no_sense_is_refused(texts: list[str], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        Client(*texts)


def test_a_plain_url_contradicts_options_with_tls() -> None:
    with pytest.raises(InvalidRequest, match=r"write liftbridge\+tls://"):
        Client("liftbridge://a", options=ClientOptions(tls=TLS()))


@pytest.mark.parametrize(
    "text",
    [
        *("liftbridge+tls://ann:hush@a:1", "liftbridge+tls://a?key_password=hush"),
        *("liftbridge+tls://a?Token=hush", "liftbridge://hush@a", "ann:hush@a:9292"),
        *("ann:hush", "ann:hush,bob", "ann hush:1", "hush@a://b"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Client(text)
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(caught.value)


def test_what_stands_in_a_variable_is_addresses_or_one_url() -> None:
    assert split_servers(" a:1, b ,") == ["a:1", "b"]
    assert split_servers(" liftbridge+tls://a,b?ca=c ") == ["liftbridge+tls://a,b?ca=c"]
    variables = {
        "LIFTBRIDGE_SERVERS": "liftbridge+tls://a,b?cert=c",
        "LIFTBRIDGE_TLS_KEY_PASSWORD": "p",
    }
    client = Client.from_env(variables)
    assert client.options.tls == TLS(cert="c", key_password="p")  # noqa: S106
    assert repr(client) == "<Client liftbridge+tls://a:9292,b:9292 new>"


@pytest.mark.parametrize("in_url", ["cert", "key"])
def test_a_certificate_and_its_key_may_be_said_in_two_places(in_url: str) -> None:
    in_variable = "key" if in_url == "cert" else "cert"
    variables = {
        "LIFTBRIDGE_SERVERS": f"liftbridge+tls://a?{in_url}={in_url}.pem",
        f"LIFTBRIDGE_TLS_{in_variable.upper()}": f"{in_variable}.pem",
        f"LIFTBRIDGE_TLS_{in_url.upper()}": "not.pem",  # the URL goes first
    }
    assert Client.from_env(variables).options.tls == TLS(cert="cert.pem", key="key.pem")


def test_a_zone_of_ipv6_in_a_url() -> None:
    assert parse_servers(["liftbridge://[fe80::1%25eth0]:1"]).addresses == ("[fe80::1%eth0]:1",)


@pytest.mark.parametrize("text", ["a,,b:1", "a;b", "a;b:1"])
def test_one_address_is_not_several(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an address"):
        Client(text)


def test_a_path_is_taken_to_the_letter() -> None:
    url = "liftbridge+tls://a?ca=/c++/ca%3B%2B.pem&cert=a=b"
    assert parse_servers([url]).tls(None) == TLS(ca="/c++/ca;+.pem", cert="a=b")


def test_a_client_that_could_not_be_made_can_be_shown() -> None:
    client = Client.__new__(Client)
    with pytest.raises(InvalidRequest):
        client.__init__("a..b")  # type: ignore[misc]
    assert repr(client) == "<Client  new>"


def test_a_password_alone_does_not_switch_tls_on() -> None:
    password = {"LIFTBRIDGE_TLS_KEY_PASSWORD": "p"}
    plain = Client.from_env(password | {"LIFTBRIDGE_SERVERS": "liftbridge://a"})
    assert plain.options.tls is None
    assert Client.from_env(password | {"LIFTBRIDGE_SERVERS": "a"}).options.tls is None


@given(st.text(max_size=60))
def test_any_text_is_servers_or_refused(text: str) -> None:
    try:
        servers = parse_servers([f"liftbridge+tls://{text}"])
        servers.tls(None)
    except InvalidRequest:
        return
    assert servers.addresses

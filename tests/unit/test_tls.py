from __future__ import annotations

import pickle
import ssl
import warnings
from pathlib import Path
from typing import Any

import pytest

from liftbridge_aio import TLS, ClientOptions, InvalidRequest, WrongType

PEM = "-----BEGIN PRIVATE KEY-----\nhush"
UNUSABLE_NAMES = (" ", "a b", ".a", "..", "a\0", "x" * 70, "::1\0")


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"hush"


def test_variables_switch_tls_on_and_off() -> None:
    assert TLS.from_env({}) is None
    assert TLS.from_env({"LIFTBRIDGE_TLS": "1"}) == TLS()
    found = {"LIFTBRIDGE_TLS_CA": "ca.pem", "LIFTBRIDGE_TLS_SERVER_NAME": "n"}
    assert TLS.from_env(found) == TLS(ca="ca.pem", server_name="n")
    assert TLS.from_env(found | {"LIFTBRIDGE_TLS": "0"}) is None
    assert ClientOptions.from_env(found).tls == TLS(ca="ca.pem", server_name="n")
    password = {"LIFTBRIDGE_TLS_KEY_PASSWORD": "hush"}
    assert TLS.from_env(password) is None
    assert TLS.from_env(password, secure=True) == TLS(key_password="hush")  # noqa: S106
    with pytest.raises(InvalidRequest, match="LIFTBRIDGE_TLS must be 0 or 1"):
        TLS.from_env({"LIFTBRIDGE_TLS": "perhaps"})


@pytest.mark.parametrize("name", ["CA", "CERT", "KEY", "KEY_PASSWORD", "SERVER_NAME"])
def test_an_empty_variable_does_not_switch_tls_off_in_silence(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"LIFTBRIDGE_TLS_{name} is empty"):
        TLS.from_env({f"LIFTBRIDGE_TLS_{name}": ""})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"ca": b"pem"}, "ca is the path of a PEM file, not bytes"),
        ({"cert": "c", "key": PEM}, "not its content"),
        ({"ca": ""}, "not its content"),
        ({"cert": "c", "key_password": b"hush"}, "key_password must be a string, not bytes"),
        *(({"server_name": name}, "server_name must be a name") for name in UNUSABLE_NAMES),
        ({"ca": "x\0y"}, "ca has a NUL in it"),
        ({"cert": BytesPath()}, "cert is the path of a PEM file, not one in bytes"),
        ({"key": "k"}, "requires cert"),
        ({"context": "hush"}, "context is an ssl.SSLContext, not str"),
        ({"context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "context is for servers"),
        (
            {"context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "ca": "ca.pem"},
            "either a context or files",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint) as caught:
        TLS(**values)
    assert "hush" not in repr(caught.value)


@pytest.mark.parametrize("name", ["a", "a.example.", "bücher.example", "127.0.0.1", "::1"])
def test_names_that_certificates_can_be_for(name: str) -> None:
    assert TLS(server_name=name).server_name == name


def test_a_context_for_old_versions_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.raises(InvalidRequest, match=r"before TLS 1\.2"):
        TLS(context=context)


def test_what_is_no_tls_is_refused() -> None:
    with pytest.raises(WrongType, match="tls is a TLS"):
        ClientOptions(tls=True)  # type: ignore[arg-type]


def test_it_shows_no_password_and_travels_by_pickle() -> None:
    tls = TLS(ca=Path("ca.pem"), cert="c", key="k", key_password="hush")  # noqa: S106
    for shown in (repr(tls), str(tls), repr(ClientOptions(tls=tls))):
        assert "hush" not in shown
    assert pickle.loads(pickle.dumps(tls)) == tls  # noqa: S301

"""The guide on security: its code runs, its tables are complete."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any, Final

import pytest

from liftbridge_aio import TLS, Client, errors
from liftbridge_aio._client.server_url import parse_servers
from liftbridge_aio.cli.connection import ConnectionFlags
from support.markdown import ROOT, Block, blocks, names, table
from support.servers.tls_node import MODEL

GUIDE: Final = ROOT / "docs" / "security.md"


@pytest.mark.parametrize("block", blocks(GUIDE, "python"), ids=str)
def test_code_runs_by_itself(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    above = "\n" * (block.line - 1)  # so that errors name the line of the page
    code: Any = compile(above + block.code, str(GUIDE), "exec", dont_inherit=True)
    exec(code, {"__name__": "guide"})  # noqa: S102
    said = capsys.readouterr().out
    if "print" in block.code:
        assert "ann is let in" in said
        assert "requires a certificate of the client" in said


def test_the_url_that_is_shown_says_everything_that_a_url_can() -> None:
    url = blocks(GUIDE, "text")[0].code.strip()
    assert parse_servers([url]).tls(None) == TLS(
        ca="ca.pem", cert="me.pem", key="me-key.pem", server_name="name"
    )


def test_the_table_of_options_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LIFTBRIDGE_")]:
        monkeypatch.delenv(name)
    rows = table(GUIDE, "Field of `TLS`")
    assert [names(row[0])[0] for row in rows] == [field.name for field in fields(TLS)]
    for field, parameter, variable, flag, _ in rows:
        (name,) = names(field)
        others: dict[str, Any] = {"cert": "x"} if name == "key" else {}
        wanted: dict[str, Any] = {name: "v", **others}
        for said in names(variable):
            more = {f"LIFTBRIDGE_TLS_{key.upper()}": value for key, value in others.items()}
            assert TLS.from_env({said: "v", **more}, secure=True) == TLS(**wanted)
        for said in names(parameter):
            more_text = "".join(f"&{key}={value}" for key, value in others.items())
            client = Client(f"liftbridge+tls://a?{said}=v{more_text}")
            assert client.options.tls == TLS(**wanted)
        for said in names(flag):
            assert said == f"--tls-{name.replace('_', '-')}"
            assert f"tls_{name}" in {each.name for each in fields(ConnectionFlags)}


def test_the_tables_of_errors_name_errors() -> None:
    named = {name for row in table(GUIDE, "What") for name in names(row[1])}
    assert named == {"ServerNotTrusted", "ClientNotTrusted", "TLSFailed", "PermissionDenied"}
    assert all(issubclass(getattr(errors, name), errors.LiftbridgeError) for name in named)


def test_the_model_is_the_one_that_is_tested() -> None:
    (block,) = blocks(GUIDE, "ini")
    assert block.code.strip() == MODEL.strip()

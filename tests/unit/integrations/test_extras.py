"""The frameworks are optional: who imports one without having it is told what to install."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

ROOM = "liftbridge_aio.integrations"


@pytest.mark.parametrize("framework", ["fastapi", "starlette", "aiohttp"])
def test_what_is_missing_is_named_with_its_extra(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name == f"{ROOM}.{framework}" or name.startswith(f"{framework}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(ImportError, match=rf"pip install 'liftbridge-aio\[{framework}\]'"):
        importlib.import_module(f"{ROOM}.{framework}")


def test_nothing_else_imports_them() -> None:
    code = (
        "import sys, liftbridge_aio.integrations, liftbridge_aio.integrations.event_stream,"
        " liftbridge_aio.integrations.health\n"
        "print({'fastapi', 'starlette', 'aiohttp'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

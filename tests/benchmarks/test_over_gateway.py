from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.command import main
from benchmarks.over_gateway import BARE, GATEWAY, REFERENCE


def test_each_server_appends_and_streams(durable_streams_packages: Path, capsys: Any) -> None:
    del durable_streams_packages  # that they can be installed is all that is asked
    words = ("gateway", "--server", "embedded", "--rounds", "1", "--quick", "--output", "json")
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)["gateway"]
    assert [each["server"] for each in found] == [GATEWAY, BARE, REFERENCE, GATEWAY, REFERENCE]
    assert [each["ratio"] is None for each in found] == [False, True, False, False, True]
    for each in found:
        assert each["values"]["median"] > 0

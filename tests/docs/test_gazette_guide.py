"""The page about Gazette's messages: its table has every name of the published guide."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio.transactions import errors, journals
from support.markdown import ROOT, blocks, names, table

GAZETTE: Final = ROOT / "docs" / "gazette.md"
EXPORTED: Final = """
    FixedFrameHeaderLength FixedFrameWord ErrDesyncDetected ErrEmptyListResponse ErrMustStartReplay
    EncodeFixedProtoFrame RegisterFraming UnpackFixedFrame UnpackLine AckIntent CSVFrameable
    CSVRecord Clock GetClock NewClock Envelope Flags GetFlags Frameable Framing
    FramingByContentType Iterator JSONMarshalerTo JournalProducer Mappable MappingFunc ModuloMapping
    RandomMapping RendezvousMapping MappingKeyFunc Message NewMessageFunc PartitionsFunc ProducerID
    GetProducerID NewProducerID ProducerState ProtoFrameable Publisher NewPublisher BuildAckIntents
    PublishCommitted PublishUncommitted ReadCommittedIter NewReadCommittedIter ReadUncommittedIter
    NewReadUncommittedIter Sequencer NewSequencer DequeCommitted HasPending ProducerStates
    QueueUncommitted ReplayRange StartReplay UUID BuildUUID UnmarshalFunc Validator
"""


def test_the_table_has_every_name_of_the_guide() -> None:
    shown = [name for row in table(GAZETTE, "The guide") for name in names(row[0])]
    assert sorted(set(shown)) == sorted(set(EXPORTED.split()))


def test_every_name_that_the_table_gives_exists() -> None:
    missing = []
    for _, ours in table(GAZETTE, "The guide"):
        for name in names(ours):
            owner, _, attribute = name.partition("(")[0].partition(".")
            home = errors if owner == "errors" else getattr(journals, owner, None)
            if home is None or (attribute and not hasattr(home, attribute)):
                missing.append(name)
    assert missing == []


def test_the_programs_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = blocks(GAZETTE, "python")
    exec(first.code, {})  # noqa: S102
    items = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert items == ["tea", "rolls", "butter", "(acknowledgement)"]
    namespace: dict[str, Any] = {}
    exec(second.code, namespace)  # noqa: S102
    asyncio.run(namespace["resume"]({}, []))

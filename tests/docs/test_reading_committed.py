"""The page about committed readings: its tables have every option, and errors that exist."""

from __future__ import annotations

import dataclasses
from typing import Final

import pytest

import liftbridge_aio
from liftbridge_aio import transactions
from liftbridge_aio.transactions import ReadCommitted
from support.markdown import ROOT, names, table

PAGE: Final = ROOT / "docs" / "reading-committed.md"
OF_PUBLISHING: Final = {"TransactionAborted", "CommitInDoubt", "ProducerFenced", "TransactionError"}


def number(text: str) -> object:
    text = text.strip("`").strip('"')
    known = {"64 MiB": 64 << 20, "False": False, "error": "error"}
    return known[text] if text in known else int(text.replace(",", ""))


def test_the_table_of_options_has_each_with_its_default() -> None:
    shown = {names(name)[0]: number(default) for name, default, _ in table(PAGE, "Option")}
    assert shown == {each.name: each.default for each in dataclasses.fields(ReadCommitted)}


def test_the_table_of_errors_has_those_of_reading() -> None:
    shown = {name for row in table(PAGE, "Error") for name in names(row[0])}
    public = {
        name
        for name in transactions.__all__
        if isinstance(kind := getattr(transactions, name), type) and issubclass(kind, Exception)
    }
    assert shown == public - OF_PUBLISHING


@pytest.mark.parametrize("row", table(ROOT / "docs" / "gazette.md", "Gazette"), ids=str)
def test_what_takes_the_place_of_gazette_s_names_exists(row: list[str]) -> None:
    homes = {
        "Producer": transactions.Producer,
        "Transaction": transactions.Transaction,
        "Client": liftbridge_aio.Client,
        "Subscription": liftbridge_aio.Subscription,
    }
    for name in names(row[1]):
        owner, _, attribute = name.partition(".")
        assert owner not in homes or not attribute or hasattr(homes[owner], attribute)

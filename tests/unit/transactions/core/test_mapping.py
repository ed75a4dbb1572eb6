"""Which journal gets a message; the fixtures are those of Gazette."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core.mapping import (
    Journal,
    MappingFunction,
    fnv1a,
    modulo_mapping,
    random_mapping,
    rendezvous_mapping,
)
from liftbridge_aio.transactions.errors import NoJournals

KEYS = (
    *("It always", "seems", "impossible", "until", "it is done.", "- Nelson Mandela"),
    *("Shall I compare", "thee to", "a summer's day?", "Thou art more", "lovely and more"),
    "temperate - Shakespeare",
)


def journals(count: int) -> list[Journal]:
    return [Journal(f"a/topic/part-{number:03}", "text/csv") for number in range(count)]


def numbers(mapping: MappingFunction[str]) -> list[int]:
    return [int(mapping(key).name[-3:]) for key in KEYS]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0x811C9DC5),
        ("a", 0xE40C292C),
        ("foobar", 0xBF9CF968),
        ("It always", 0x5E1F62FD),
        ("a/topic/part-000", 0x48DD3571),
    ],
)
def test_the_hash_is_fnv_1a(text: str, value: int) -> None:
    assert fnv1a(text.encode()) == value


def test_modulo_mapping_regression_fixture() -> None:
    among = journals(443)
    found = numbers(modulo_mapping(str.encode, lambda: among))
    assert found == [119, 54, 308, 97, 179, 437, 84, 300, 214, 135, 118, 228]


@pytest.mark.parametrize("count", [400, 500])
def test_rendezvous_mapping_regression_fixture(count: int) -> None:
    """The same keys keep their journals when a hundred come or go."""
    among = journals(count)
    found = numbers(rendezvous_mapping(str.encode, lambda: among, compat="gazette"))
    assert found == [21, 179, 50, 13, 337, 29, 110, 395, 192, 394, 344, 75]


@pytest.mark.parametrize("count", [2, 3, 10, 30])
def test_the_usual_rendezvous_spreads_keys_evenly(count: int) -> None:
    among = journals(count)
    mapping = rendezvous_mapping(str.encode, lambda: among)
    found = Counter(mapping(str(number)) for number in range(5000))
    assert max(found.values()) < 5000 / count * 1.6
    assert min(found.values()) > 5000 / count * 0.4


def test_gazettes_rendezvous_does_not() -> None:
    among = journals(10)
    mapping = rendezvous_mapping(str.encode, lambda: among, compat="gazette")
    assert max(Counter(mapping(str(number)) for number in range(5000)).values()) > 2000


def test_only_keys_of_a_journal_that_goes_move() -> None:
    among = journals(10)
    mapping = rendezvous_mapping(str.encode, lambda: among)
    before = {key: mapping(key) for key in map(str, range(1000))}
    gone = among.pop(4)
    assert {key for key in before if mapping(key) != before[key]} == {
        key for key, journal in before.items() if journal == gone
    }


def test_random_mapping_spreads() -> None:
    among = journals(4)
    mapping = random_mapping(lambda: among, random.Random(7).randrange)
    assert set(Counter(mapping(None) for _ in range(400))) == set(among)


def test_a_mapping_gives_the_content_type() -> None:
    among = [Journal("a", "application/x-ndjson")]
    assert modulo_mapping(str.encode, lambda: among)("key").content_type == "application/x-ndjson"


def test_without_journals_mappings_say_so() -> None:
    for mapping in (
        modulo_mapping(str.encode, list),
        rendezvous_mapping(str.encode, list),
        rendezvous_mapping(str.encode, list, compat="gazette"),
        random_mapping(list, random.randrange),
    ):
        with pytest.raises(NoJournals, match="no journal"):
            mapping("key")


def test_a_list_that_changes_is_looked_at_each_time() -> None:
    lists = itertools.cycle([journals(1), journals(2)[1:]])
    mapping = rendezvous_mapping(str.encode, lambda: next(lists))
    assert [mapping("key").name[-1] for _ in range(4)] == ["0", "1", "0", "1"]


def test_another_compat_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="compat is 'gazette' or None, not 'kafka'"):
        rendezvous_mapping(str.encode, list, compat="kafka")  # type: ignore[arg-type]

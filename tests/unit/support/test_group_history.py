"""Verdicts on group histories are right, so that the tests with servers mean something."""

from __future__ import annotations

from support.groups.group_history import Commit, Handled, History, Place, Sent, Share, StepBack

HERE = Place("orders", 0)
THERE = Place("orders", 1)


def handled(offset: int, at: int, member: str = "a", place: Place = HERE) -> Handled:
    return Handled(member, place, offset, str(offset), at)


def share(epoch: int, at: int, *places: Place) -> Share:
    return Share(epoch, frozenset(places), at)


def test_offsets_that_nobody_handled_are_found_inside_and_at_the_end() -> None:
    history = History(handled=[handled(0, 1), handled(2, 2, "b"), handled(0, 3, "b")])

    assert history.skipped({HERE: 2}) == {HERE: [1]}
    assert history.skipped({HERE: 3, THERE: 0}) == {HERE: [1, 3], THERE: [0]}
    history.handled.append(handled(1, 4))
    assert history.skipped({HERE: 2}) == {}


def test_a_position_before_all_up_to_it_was_handled_is_found() -> None:
    first, early, late = Commit(HERE, 0, 3), Commit(HERE, 2, 5), Commit(HERE, 2, 7)
    history = History(
        handled=[handled(0, 1), handled(2, 2, "b"), handled(1, 6)], commits=[first, early, late]
    )

    assert history.committed_too_early() == [early]
    beyond = Commit(HERE, 3, 9)
    history.commits.append(beyond)
    assert history.committed_too_early() == [early, beyond]
    of_nobody = Commit(THERE, 0, 9)
    history.commits = [of_nobody]
    assert history.committed_too_early() == [of_nobody]


def test_a_position_below_any_before_it_is_a_step_back_each_time() -> None:
    commits = [Commit(HERE, offset, at) for at, offset in enumerate([0, 5, 3, 4, 5, 6])]
    history = History(commits=[*commits, Commit(THERE, 1, 9)])

    assert history.steps_back() == [
        StepBack(commits[1], commits[2]),
        StepBack(commits[1], commits[3]),
    ]
    assert history.committed() == {HERE: 6, THERE: 1}


def test_a_position_was_stored_by_whose_call_for_it_was_under_way() -> None:
    history = History(sent=[Sent("a", HERE, 4, 1), Sent("b", HERE, 4, 4), Sent("c", HERE, 5, 4)])
    history.answered("a", HERE, 4, 3)
    history.answered("a", HERE, 4, 9)

    assert [history.sender(Commit(HERE, 4, at)) for at in (0, 1, 3, 4, 9)] == [
        None,
        "a",
        "a",
        "b",
        "b",
    ]
    assert history.sender(Commit(HERE, 6, 5)) is None
    assert history.sender(Commit(THERE, 4, 5)) is None


def test_an_owner_is_what_members_knew_last_by_an_epoch_or_at_a_time() -> None:
    history = History()
    history.shares["a"] += [share(1, 1, HERE, THERE), share(2, 4, HERE)]
    history.shares["b"] += [share(2, 5, THERE)]

    assert history.owned("ab", 2) == {HERE: ["a"], THERE: ["b"]}
    assert history.owned("ab", 3) == {}
    assert history.owned("ac", 1) == {HERE: ["a"]}
    assert history.owner_at(THERE, 3, "ab") == "a"
    assert history.owner_at(THERE, 4, "ab") is None
    assert history.owner_at(THERE, 5, "ab") == "b"


def test_an_owner_serves_when_it_handles_a_new_message_after_it_became_one() -> None:
    history = History(handled=[handled(0, 1), handled(1, 5), handled(2, 6), handled(2, 7, "b")])
    history.shares["a"].append(share(1, 2, HERE))

    assert history.served_at(HERE, "a", 1) == 6
    assert history.served_at(HERE, "a", 2) is None


def test_one_offset_with_two_values_is_a_contradiction() -> None:
    one, other = handled(1, 1), Handled("b", HERE, 1, "another", 2)

    assert History(handled=[one, handled(1, 3, "b")]).contradictions() == []
    assert History(handled=[one, other]).contradictions() == [(one, other)]

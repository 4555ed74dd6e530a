"""Results are kept by the identity of what they were made from."""

from headrace import limits
from headrace.memo import Memo


def made(memo: Memo, slot: str, *inputs: object) -> object:
    return memo.get(slot, inputs, object)


def test_a_result_is_given_again_while_its_inputs_are_the_same_objects() -> None:
    memo, one, two = Memo(), [1], [2]
    first = made(memo, "a", one, two)
    assert made(memo, "a", one, two) is first
    assert memo.built == 1


def test_an_equal_object_is_another_object() -> None:
    memo, one = Memo(), [1]
    first = made(memo, "a", one)
    assert made(memo, "a", [1]) is not first


def test_more_or_fewer_inputs_are_others() -> None:
    memo, one, two = Memo(), [1], [2]
    first = made(memo, "a", one, two)
    second = made(memo, "a", one)
    assert second is not first
    assert made(memo, "a", one, two) is not second


def test_slots_do_not_meet() -> None:
    memo, one = Memo(), [1]
    assert made(memo, "a", one) is not made(memo, "b", one)


def test_past_memo_slots_all_are_forgotten_and_nothing_is_wrong() -> None:
    assert limits.MEMO_SLOTS > 3
    memo, one = Memo(limit=3), [1]
    first = [made(memo, slot, one) for slot in "abc"]
    assert [made(memo, slot, one) for slot in "abc"] == first
    assert made(memo, "d", one) not in first
    assert made(memo, "a", one) is not first[0]

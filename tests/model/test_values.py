"""Values are Structs: they cannot be changed, and a changed copy is checked like a new value."""

import copy
import pickle

import pytest
from msgspec.structs import replace

from sessionary.errors import BadInput
from sessionary.model.message import Message, Role, Text, ToolCall
from sessionary.model.source import Channel, Person, Source
from sessionary.model.usage import MAX_TOKENS, CostStatus, Usage, as_stored

MESSAGE = Message(Role.USER, (Text("hello"),), person=Person("1", name="Ann"))


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        MESSAGE.model = "another"  # type: ignore[misc]


def test_a_changed_copy_is_checked_like_a_new_value() -> None:
    with pytest.raises(BadInput, match="input_tokens"):
        replace(Usage(), input_tokens=-1)
    with pytest.raises(BadInput, match="role"):
        replace(MESSAGE, role="user")

    assert replace(Usage(), cost_microusd=3).cost_status is CostStatus.REPORTED


def test_a_stored_call_is_read_although_it_is_larger_than_a_new_one_may_be() -> None:
    stored = as_stored(input_tokens=MAX_TOKENS + 1, model="m")

    assert stored.input_tokens == MAX_TOKENS + 1
    assert type(stored) is Usage
    assert as_stored(model="m") == Usage("m")


def test_two_reads_of_a_stored_value_share_nothing_that_could_be_changed() -> None:
    from sessionary.model.source import source_as_stored

    first, second = (source_as_stored({"platform": "web", "chat_type": "dm"}) for _ in range(2))

    assert first == second == Source("web")
    assert first.extra is not second.extra


def test_sources_that_differ_in_unknown_fields_have_the_same_hash_and_are_not_equal() -> None:
    plain, more = Source("web", "1"), Source("web", "1", extra={"colour": "red"})

    assert hash(plain) == hash(more)
    assert plain != more


@pytest.mark.parametrize("value", [MESSAGE, Source("web", "1"), Usage("m", 1), Channel("web", "1")])
def test_a_value_can_be_copied_and_pickled(value: object) -> None:
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_value_shows_its_fields() -> None:
    assert repr(ToolCall("1", "look")) == "ToolCall(id='1', name='look', arguments=None, extra={})"


@pytest.mark.parametrize(("given", "kept"), [(5, "5"), ("\ud83d\ude00", "\U0001f600"), ("é", "é")])
def test_an_id_is_brought_to_its_form(given: object, kept: str) -> None:
    assert Person(given).id == kept  # type: ignore[arg-type]
    assert Channel("web", given).chat_id == kept  # type: ignore[arg-type]
    assert Source("web", given).chat_id == kept  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, "", True, 1.5])
def test_what_is_no_id_is_refused(given: object) -> None:
    with pytest.raises(BadInput):
        Person(given)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        Channel("web", given)  # type: ignore[arg-type]

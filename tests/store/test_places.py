"""How far a channel has read its platform, and where it has conversations."""

from hansard.actions import places
from hansard.model.place import Channel, Source
from hansard.store.database import Store
from hansard.testing.world import World


def test_a_place_is_kept_for_each_platform_and_profile(store: Store) -> None:
    world = World(store)
    assert world.read(places.place, "discord", profile="main") is None

    world.write(places.keep_place, "discord", "1", profile="main")
    world.write(places.keep_place, "discord", "2", profile="main")
    world.write(places.keep_place, "discord", "7", profile="other")

    assert world.read(places.place, "discord", profile="main") == "2"
    assert world.read(places.place, "discord", profile="other") == "7"
    assert world.read(places.place, "matrix", profile="main") is None


def test_channels_with_a_conversation_are_named_once_those_spoken_in_last_first(
    store: Store,
) -> None:
    world = World(store)
    people = [
        Source("discord", "9", chat_type="channel", user_id="ann"),
        Source("discord", "5", chat_type="dm", user_id="ann"),
        Source("discord", "9", chat_type="thread", thread_id="7", user_id="ann"),
        Source("discordant", "1", chat_type="dm", user_id="ann"),
        Source("discord", "9", chat_type="channel", user_id="bea"),
    ]
    for number, source in enumerate(people):
        world.arrive(source, "hello", idem=str(number))
        begun = world.begin(source)
        assert begun is not None
        world.finish(begun, "hi")

    found = world.read(places.chats, "discord", profile="main", most=10)

    assert found == [Channel("discord", "9"), Channel("discord", "9", "7"), Channel("discord", "5")]
    assert world.read(places.chats, "discord", profile="main", most=1) == found[:1]

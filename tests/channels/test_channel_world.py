"""The world of the channels' tests: what several of them on one store share."""

from sessionary.store.database import Store
from sessionary.testing.channel_world import ChannelWorld
from tests.support.fake_telegram import FakeTelegram


async def test_a_restarted_process_repeats_no_id_and_does_not_go_back_in_time(
    store: Store,
) -> None:
    """Ids that are made twice break a test only when two clocks happen to agree."""
    async with FakeTelegram() as fake:
        first = ChannelWorld(store, fake)
        at = first.clock.now()
        made = first.ids.new(at)
        later = first.clock.tick(1)

        second = ChannelWorld(store, fake)

        assert second.clock.now() == later
        assert second.ids.new(at) != made

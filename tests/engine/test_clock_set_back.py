"""F12: a clock that is set back by weeks leaves nothing waiting for its old time to come again."""

from datetime import timedelta

from sessionary.errors import RetryLater
from sessionary.model.turn import Delivery, TurnState
from tests.engine.test_finalizers import dying_turn
from tests.support.engine_world import EngineWorld


async def test_what_waits_to_be_sent_goes_out(world: EngineWorld) -> None:
    tries = []

    def busy_once(delivery: Delivery) -> BaseException | None:
        tries.append(delivery.id)
        return RetryLater("slow down", after=40) if len(tries) == 1 else None

    world.adapter.before = busy_once
    engine = await world.started()
    await world.says(engine, "hello")
    await world.until(lambda: bool(tries))
    await world.until_outbox_is_idle()
    world.clock.tick(days=-30)
    await world.settle(engine)
    await engine.stop()

    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_a_turn_whose_process_died_before_is_interrupted(world: EngineWorld) -> None:
    await dying_turn(world)
    world.clock.tick(days=-30)
    engine = await world.started()
    soon = world.clock.now() + timedelta(hours=1)

    async def has_new_lease() -> bool:
        return (await world.turns("dying"))[0].lease_until <= soon

    await world.eventually(has_new_lease)
    assert (await world.turns("dying"))[0].state is TurnState.RUNNING, "its lease is respected"
    world.clock.tick(31)
    await world.settle(engine)
    sent = world.adapter.texts("loopback:dying")
    await engine.stop()

    assert [text.split(":")[0] for text in sent] == ["Interrupted"]

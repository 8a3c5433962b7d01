"""What waits in the outbox outlives a platform that is away, and a key that is refused."""

from datetime import timedelta

from sessionary.errors import NotAllowed, RetryLater
from sessionary.model.turn import Delivery
from tests.support.engine_world import EngineWorld

OUTAGE = timedelta(minutes=10)


async def outage(world: EngineWorld, error: BaseException) -> int:
    """A message is answered while its platform fails for ten minutes; how often it was tried."""
    tries = []
    back = world.clock.now() + OUTAGE

    def fails(delivery: Delivery) -> BaseException | None:
        tries.append(delivery.attempts)
        return error if world.clock.now() < back else None

    world.adapter.before = fails
    engine = await world.started()
    await world.says(engine, "hello")
    await world.until(lambda: bool(tries))
    while world.clock.now() < back + OUTAGE and not world.adapter.sent:
        await world.until_outbox_is_idle()
        world.clock.tick(20)
    await world.settle(engine)
    await engine.stop()
    return len(tries)


async def test_a_platform_that_is_away_for_ten_minutes_gets_what_waits(world: EngineWorld) -> None:
    """F13: that it may be asked again at once does not use up all tries at once."""
    await outage(world, RetryLater("it cannot be reached", after=1))

    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_what_waits_for_a_refused_key_goes_out_once_it_is_good_again(
    world: EngineWorld,
) -> None:
    """F13: the owner is notified that nothing is lost."""
    tried = await outage(world, NotAllowed("the token is refused; nothing is lost"))

    assert world.adapter.texts("loopback:1") == ["re: hello"]
    assert tried > 1

# Generated from async_turn.py by tools/make_sync_client.py: change that file, and run the tool.
"""A turn that runs in this program: it holds the session's lease, and renews it by itself."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from sessionary.actions import turns
from sessionary.actions.sessions import read
from sessionary.actions.sessions.log import Appended
from sessionary.client import operations
from sessionary.client.operations import (
    LEASE_SECONDS,
    POLL_SECONDS,
    LiveEvents,
    SessionTarget,
    begin_turn,
)
from sessionary.client.sync_runtime import (
    ChangeSignal,
    Heartbeat,
    finish,
    prepare_prices,
    take_result,
)
from sessionary.client.values import Content, InputMessage, RoleName
from sessionary.errors import BadInput, Conflict, TurnLost
from sessionary.model.turn import Lease, TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Tx

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary


class RunningTurn:
    """A turn that holds the session's lease. Leaving the block ends it; an exception ends it as failed."""

    def __init__(
        self,
        client: "Sessionary",
        target: SessionTarget,
        prompt: InputMessage | None,
        *,
        agent: str | None,
        idempotency_key: str | None,
        wait: float | None,
    ) -> None:
        self._client = client
        self._target = target
        self._prompt = None if prompt is None else prompt.read(target.source)
        self._agent = agent
        self._idempotency_key = idempotency_key
        self._wait = wait
        self._begun: turns.Begun | None = None
        self._live: LiveEvents
        self._heartbeat = Heartbeat(self._renew, seconds=LEASE_SECONDS / 3)

    @property
    def id(self) -> str:
        """The turn's id."""
        return self._lease.turn_id

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._lease.session_id

    def append(
        self,
        role: RoleName,
        content: Content,
        *,
        usage: Usage | None = None,
        model: str | None = None,
        finish_reason: str | None = None,
        token_count: int | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> Appended:
        """Add a finished step, durable when this returns. Raises `TurnLost` if the lease is lost; stop then."""
        given = InputMessage(
            role,
            content,
            model=model,
            finish_reason=finish_reason,
            token_count=token_count,
            extra=extra,
        )
        message, files = given.read()
        prepare_prices([usage])
        app, lease = self._client.app, self._lease
        done = finish(
            app.store.write(
                turns.add_step,
                lease,
                message,
                app.priced(usage),
                profile=app.profile,
                moment=app.moment(),
                files=files,
            )
        )
        self._live.publish("step")
        return done

    def delta(self, text: str, *, thinking: bool = False) -> None:
        """Show streamed text or reasoning at once to viewers of the session on a server that this client runs.

        Nothing is stored: `append` stores the finished step, and `checkpoint` the text so far. Without a server in
        this process (`serve`) it does nothing. Raises `TurnLost` if the lease is lost.
        """
        _ = self._lease
        self._live.begin()
        self._live.publish("thinking" if thinking else "delta", text)

    def checkpoint(self, text: str) -> None:
        """Store the text streamed so far of an unfinished step; it is kept if the process dies."""
        finish(self._client.app.store.write(turns.checkpoint, self._lease, text))

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException as error:
            if self._begun is not None:  # cancelled just when the lease was taken
                self._end(error)
            raise
        self._heartbeat.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._heartbeat.stop()
        self._end(error)

    @property
    def _lease(self) -> Lease:
        if self._begun is None:
            raise BadInput("The turn has not begun: use it in a `with` block.")
        if self._heartbeat.lost is not None:
            raise self._heartbeat.lost
        return self._begun.lease

    def _begin(self) -> None:
        """Take the lease; with `wait` try again until the running turn has ended or the time is up."""
        app = self._client.app
        deadline = time.monotonic() + (self._wait or 0.0)
        signal: ChangeSignal | None = None
        was_running = True
        try:
            while True:
                begin = begin_turn(
                    app,
                    self._target,
                    self._prompt,
                    agent=self._agent,
                    idempotency_key=self._idempotency_key,
                )
                try:
                    take_result(app.store.write(begin), self._note)
                    return
                except Conflict:
                    left = deadline - time.monotonic()
                    is_running = left > 0 and self._is_running()
                    # The turn may have ended just now: only a second refusal has another reason.
                    if left <= 0 or not (is_running or was_running):
                        raise
                    was_running = is_running
                if not is_running:
                    continue
                if signal is None:
                    signal = ChangeSignal(app.store)
                else:
                    signal.wait(min(left, POLL_SECONDS))
        finally:
            if signal is not None:
                signal.close()

    def _is_running(self) -> bool:
        """Return whether another turn is running in the session."""
        app, target = self._client.app, self._target

        def look(tx: Tx) -> bool:
            id = operations.find_id(tx, target, {})
            return id is not None and read.get_head(tx, id, profile=app.profile).running

        return finish(app.store.read(look))

    def _end(self, error: BaseException | None) -> None:
        app = self._client.app
        assert self._begun is not None
        lease, moment = self._begun.lease, app.moment()
        state, reason = TurnState.DONE, None
        if error is not None:
            state = TurnState.FAILED if isinstance(error, Exception) else TurnState.INTERRUPTED
            reason = f"{type(error).__name__}: {error}"
        try:
            if reason is None:
                finish(
                    app.store.write(
                        turns.end, lease, turns.Ending(), profile=app.profile, moment=moment
                    )
                )
            else:
                finish(
                    app.store.write(
                        turns.end_failed,
                        lease,
                        state=state,
                        reason=reason,
                        profile=app.profile,
                        moment=moment,
                    )
                )
        except TurnLost:
            self._live.publish("lost")
            raise
        self._live.publish("ended", {"state": str(state), "reason": reason})

    def _note(self, begun: turns.Begun) -> None:
        self._begun = begun
        self._live = LiveEvents(self._client.app, begun.lease)
        self._target.id = begun.route.session_id

    def _renew(self) -> Pending[None]:
        app = self._client.app
        assert self._begun is not None
        return app.store.write(
            turns.renew, self._begun.lease, seconds=LEASE_SECONDS, now=app.clock.now()
        )

    def __repr__(self) -> str:
        if self._begun is None:
            return f"<{type(self).__name__}, not begun>"
        lease = self._begun.lease
        return f"<{type(self).__name__} {lease.turn_id} of session {lease.session_id}>"

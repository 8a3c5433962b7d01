"""A turn that runs in this program: it holds the session's lease, and renews it by itself."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from sessionary.actions import turns
from sessionary.actions.sessions import read
from sessionary.actions.sessions.log import Appended
from sessionary.client import operations
from sessionary.client.async_runtime import (
    AsyncChangeSignal,
    AsyncHeartbeat,
    finish,
    prepare_prices,
    run_blocking,
    take_result,
)
from sessionary.client.operations import (
    LEASE_SECONDS,
    POLL_SECONDS,
    LiveEvents,
    SessionTarget,
)
from sessionary.client.values import Content, InputMessage, RoleName
from sessionary.errors import BadInput, Conflict, TurnLost
from sessionary.model.turn import Lease, Turn, TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Tx

if TYPE_CHECKING:
    from sessionary.client.async_client import AsyncSessionary
    from sessionary.model.question import Question
    from sessionary.model.question_data import QuestionData


class AsyncRunningTurn:
    """A turn that holds the session's lease. Leaving the block ends it; an exception ends it as failed.

    After `wait_for` the turn has no lease and does not end with the block: it waits for people.
    """

    def __init__(
        self,
        client: "AsyncSessionary",
        target: SessionTarget,
        begin: Callable[[], Callable[[Tx], turns.Begun | Turn]],
        *,
        wait: float | None,
    ) -> None:
        """`begin` makes the transaction that takes the lease, once for each attempt."""
        self._client = client
        self._target = target
        self._begin_turn = begin
        self._wait = wait
        self._begun: turns.Begun | None = None
        self._cannot_go_on: Turn | None = None
        self._questions: tuple[Question, ...] = ()
        self._is_parked = False
        self._live: LiveEvents
        self._heartbeat = self._new_heartbeat()

    @property
    def id(self) -> str:
        """The turn's id."""
        return self._taken.lease.turn_id

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._taken.lease.session_id

    @property
    def questions(self) -> "tuple[Question, ...]":
        """What the turn has asked people, with their answers: see `wait_for`."""
        return self._questions

    @property
    def state(self) -> str | None:
        """What was given to `wait_for` as `state`, in a turn that goes on after it."""
        resumption = self._taken.resumption
        return None if resumption is None else resumption.program_state

    async def append(
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
        await prepare_prices([usage])
        app, lease = self._client.app, self._lease
        done = await finish(
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

    async def checkpoint(self, text: str) -> None:
        """Store the text streamed so far of an unfinished step; it is kept if the process dies."""
        await finish(self._client.app.store.write(turns.checkpoint, self._lease, text))

    async def wait_for(
        self, questions: "Sequence[QuestionData]", *, state: str | None = None
    ) -> "tuple[Question, ...]":
        """Ask people something, and let the turn wait for the answers, held by no process; return the questions.

        A question with a `tool` and its `arguments` asks whether the tool may be called; `options` or a JSON `schema`
        ask for a choice or for values; otherwise the answer to `text` is a text. They are asked where a server would
        ask them, and a rule of the policy may answer an approval at once. The turn, its questions and `state`, a text
        of yours, are stored in one transaction.

        Leave the block after this: the turn cannot be written to any more. When people have answered, go on with
        `resume_turn`, in any process. Raises `BadInput` if a question cannot be asked; then the turn runs on.
        """
        from sessionary.client import program_turns  # few programs ask

        app, lease = self._client.app, self._lease
        asked = program_turns.read_questions(questions, known=self._questions)
        source, known = self._target.source, len(self._questions)
        park = await run_blocking(
            lambda: program_turns.park_turn(app, source, lease, asked, state=state)
        )
        await self._heartbeat.stop()
        try:
            await take_result(app.store.write(park), self._note_parked)
        except BaseException:
            if not self._is_parked:
                self._heartbeat = self._new_heartbeat()
                self._heartbeat.start()
            raise
        self._live.publish("ended", {"state": str(TurnState.WAITING), "reason": None})
        return self._questions[known:]

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException as error:
            if self._begun is not None:  # cancelled just when the lease was taken
                await self._end(error)
            raise
        self._heartbeat.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._heartbeat.stop()
        if not self._is_parked:
            await self._end(error)

    @property
    def _taken(self) -> turns.Begun:
        if self._begun is None:
            raise BadInput("The turn has not begun: use it in a `with` block.")
        return self._begun

    @property
    def _lease(self) -> Lease:
        lease = self._taken.lease
        if self._is_parked:
            raise BadInput(
                "The turn waits for people and cannot be written to: leave the block, and go on with `resume_turn`."
            )
        if self._heartbeat.lost is not None:
            raise self._heartbeat.lost
        return lease

    async def _begin(self) -> None:
        """Take the lease; with `wait` try again until nothing prevents it, or the time is up."""
        app = self._client.app
        deadline = time.monotonic() + (self._wait or 0.0)
        signal: AsyncChangeSignal | None = None
        was_running = True
        try:
            while True:
                try:
                    await take_result(app.store.write(self._begin_turn()), self._note)
                    break
                except Conflict:
                    left = deadline - time.monotonic()
                    is_running = left > 0 and await self._is_running()
                    # The turn may have ended just now: only a second refusal has another reason.
                    if left <= 0 or not (is_running or was_running):
                        raise
                    was_running = is_running
                if not is_running:
                    continue
                if signal is None:
                    signal = AsyncChangeSignal(app.store)
                else:
                    await signal.wait(min(left, POLL_SECONDS))
        finally:
            if signal is not None:
                signal.close()
        if self._cannot_go_on is not None:
            reason = self._cannot_go_on.reason or "it was stopped"
            raise Conflict(f"The turn cannot go on and has ended: {reason}.")

    async def _is_running(self) -> bool:
        """Return whether another turn is running in the session."""
        app, target = self._client.app, self._target

        def look(tx: Tx) -> bool:
            id = operations.find_id(tx, target, {})
            return id is not None and read.get_head(tx, id, profile=app.profile).running

        return await finish(app.store.read(look))

    async def _end(self, error: BaseException | None) -> None:
        app = self._client.app
        assert self._begun is not None
        lease, moment = self._begun.lease, app.moment()
        state, reason = TurnState.DONE, None
        if error is not None:
            state = TurnState.FAILED if isinstance(error, Exception) else TurnState.INTERRUPTED
            reason = f"{type(error).__name__}: {error}"
        try:
            if reason is None:
                await finish(
                    app.store.write(
                        turns.end, lease, turns.Ending(), profile=app.profile, moment=moment
                    )
                )
            else:
                await finish(
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

    def _note(self, begun: turns.Begun | Turn) -> None:
        if isinstance(begun, Turn):
            self._cannot_go_on = begun
            return
        self._begun = begun
        if begun.resumption is not None:
            self._questions = begun.resumption.questions
        self._live = LiveEvents(self._client.app, begun.lease)
        self._target.id = begun.route.session_id

    def _note_parked(self, questions: "tuple[Question, ...]") -> None:
        self._questions = questions
        self._is_parked = True

    def _new_heartbeat(self) -> AsyncHeartbeat:
        return AsyncHeartbeat(self._renew, seconds=LEASE_SECONDS / 3)

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

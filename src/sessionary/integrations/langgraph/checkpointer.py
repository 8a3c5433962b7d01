"""A checkpointer for LangGraph: the state of threads, and their messages as sessions.

graph = plan.compile(checkpointer=SessionaryCheckpointer(client))
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from sessionary.actions import checkpoints
from sessionary.actions.checkpoints import NewCheckpoint, StoredCheckpoint, ThreadNamespace
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict
from sessionary.integrations import thread
from sessionary.integrations.base import SessionaryClient, require_extra, wait_for_write
from sessionary.integrations.langgraph import recording
from sessionary.integrations.langgraph.recording import NewMessages, ThreadRecorder
from sessionary.integrations.thread import ExternalThread
from sessionary.model.source import Person
from sessionary.store.database import Pending, Tx
from sessionary.store.tables.checkpoints import (
    EMPTY,
    CheckpointRow,
    Serialized,
    WriteRow,
    check_id,
    value_name,
)

with require_extra("langgraph", "The checkpointer for LangGraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        PendingWrite,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.types import _DeltaSnapshot

_STRATEGIES = ("keep_latest", "delete")
# The class has a method of this name.
list_of = list


class SessionaryCheckpointer(BaseCheckpointSaver[str]):
    """Stores the checkpoints of graphs, and writes the messages of each thread into its session.

    A message and the checkpoint that has it are one transaction. `messages` is the channel that has them; with None
    only checkpoints are stored. `person` reads whose thread it is from the configuration of a run. All methods may be
    used in any thread, with a client of either kind.
    """

    def __init__(
        self,
        client: SessionaryClient,
        *,
        profile: str | None = None,
        messages: str | None = "messages",
        person: Callable[[RunnableConfig], Person | None] = lambda _: None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._client = client
        self._profile = profile or client.profile
        self._messages = messages
        self._person = person
        self._log = ThreadRecorder(client, profile=self._profile)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint; the newest one of the thread if the configuration names none."""
        return self._tuple(config, self._getting(config).result())

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Like `get_tuple`."""
        return self._tuple(config, await self._getting(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return checkpoints, the newest first, read a page at a time.

        Without a namespace those of all namespaces; without a configuration those of all threads, thread by thread.
        """
        left = limit
        for name in self._names(config):
            listing = _Listing(self, name, config, filter, before)
            while (left is None or left > 0) and not listing.is_done:
                found = listing.take(listing.reading(left).result())
                yield from map(self._plain_tuple, found)
                left = None if left is None else left - len(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Like `list`."""
        left = limit
        async for name in self._anames(config):
            listing = _Listing(self, name, config, filter, before)
            while (left is None or left > 0) and not listing.is_done:
                found = listing.take(await listing.reading(left))
                for each in found:
                    yield self._plain_tuple(each)
                left = None if left is None else left - len(found)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint and the values of the channels that have changed; durable when this returns."""
        where, writing, done = self._putting(config, checkpoint, metadata, new_versions)
        done(writing.result())
        return _config(where, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Like `put`."""
        where, writing, done = self._putting(config, checkpoint, metadata, new_versions)
        done(await wait_for_write(writing))
        return _config(where, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task has written, all or none; the same writes again change nothing."""
        self._putting_writes(config, writes, task_id, task_path).result()

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Like `put_writes`."""
        await wait_for_write(self._putting_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread for ever, and move its session to the trash."""
        self._deleting(thread_id).result()
        self._log.forget(str(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Like `delete_thread`."""
        await wait_for_write(self._deleting(thread_id))
        self._log.forget(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that runs have made; messages stay.

        Raise `Conflict` if later checkpoints are rebuilt from what these runs have written.
        """
        self._deleting_runs(run_ids).result()

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Like `delete_for_runs`."""
        await wait_for_write(self._deleting_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to a new one, and its messages to a session of that.

        What they have cost is not counted again. Raise `Conflict` if the other thread has checkpoints.
        """
        self._copying(source_thread_id, target_thread_id).result()

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Like `copy_thread`."""
        await wait_for_write(self._copying(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the checkpoints of threads, but for the newest of each namespace; with "delete" all. Messages stay.

        What a `DeltaChannel` of the newest checkpoint is rebuilt from is kept too.
        """
        for pruning in self._pruning(thread_ids, strategy):
            pruning().result()

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Like `prune`."""
        for pruning in self._pruning(thread_ids, strategy):
            await wait_for_write(pruning())

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what each channel has to be rebuilt from: its last stored value, and the writes since."""
        return self._histories(self._reading_history(config, channels).result())

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Like `get_delta_channel_history`."""
        return self._histories(await self._reading_history(config, channels))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version that sorts after the current one, and that nobody else gives.

        Two branches of a thread write different values under what would be the same number.
        """
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{self._client.moment().new_id()}"

    # What the two kinds of methods share.

    def _where(self, config: RunnableConfig) -> ThreadNamespace:
        given = config.get("configurable") or {}
        name = given.get("thread_id")
        if name is None or name == "":
            raise BadInput(
                'A checkpointer needs the name of a thread: {"configurable": {"thread_id": "…"}}.'
            )
        return ThreadNamespace(self._profile, str(name), str(given.get("checkpoint_ns") or ""))

    def _getting(self, config: RunnableConfig) -> Pending[StoredCheckpoint | None]:
        return self._client.store.read(
            checkpoints.get, self._where(config), get_checkpoint_id(config), loads=self._loads
        )

    def _loads(self, value: Serialized) -> Any:
        return self.serde.loads_typed(value)

    def _tuple(
        self, config: RunnableConfig, found: StoredCheckpoint | None
    ) -> CheckpointTuple | None:
        if found is None:
            return None
        made = self._plain_tuple(found)
        return made._replace(config=config) if get_checkpoint_id(config) else made

    def _plain_tuple(self, found: StoredCheckpoint) -> CheckpointTuple:
        row = found.row
        values = {channel: self._loads(value) for channel, value in found.values.items()}
        parent = None if row.parent_id is None else _config(found.where, row.parent_id)
        return CheckpointTuple(
            config=_config(found.where, row.id),
            checkpoint=cast(Checkpoint, {**found.body, "channel_values": values}),
            metadata=self._loads((row.metadata_form, row.metadata)),
            parent_config=parent,
            pending_writes=[self._pending(write) for write in found.writes],
        )

    def _pending(self, write: WriteRow) -> PendingWrite:
        return write.task_id, write.channel, self._loads(write.value)

    def _names(self, config: RunnableConfig | None) -> Iterator[str]:
        if config is not None:
            yield self._where(config).thread
            return
        after = 0
        while page := self._reading_names(after).result():
            yield from (name for _, name in page)
            after = page[-1][0]

    async def _anames(self, config: RunnableConfig | None) -> AsyncIterator[str]:
        if config is not None:
            yield self._where(config).thread
            return
        after = 0
        while page := await self._reading_names(after):
            for _, name in page:
                yield name
            after = page[-1][0]

    def _reading_names(self, after: int) -> Pending[Sequence[tuple[int, str]]]:
        return self._client.store.read(checkpoints.thread_names, profile=self._profile, after=after)

    def _putting(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[ThreadNamespace, Pending[int | None], Callable[[int | None], None]]:
        where = self._where(config)
        body = cast(dict[str, Any], checkpoint.copy())
        values: dict[str, Any] = body.pop("channel_values")
        told = cast(dict[str, Any], get_checkpoint_metadata(config, metadata))
        run_id, parent_id = told.get("run_id"), get_checkpoint_id(config)

        def inherited() -> list_of[tuple[str, Serialized]]:
            if set(told.get("counters_since_delta_snapshot") or ()) - values.keys():
                raise Conflict(
                    "The checkpoint that this one follows was deleted, and a DeltaChannel is rebuilt from it; nothing "
                    "was written. Run the graph again from the newest checkpoint."
                )
            return [
                (value_name(channel, version), self.serde.dumps_typed(values[channel]))
                for channel, version in checkpoint["channel_versions"].items()
                if channel in values and channel not in new_versions
            ]

        new = NewCheckpoint(
            check_id(checkpoint["id"], "id of a checkpoint"),
            None if parent_id is None else check_id(parent_id, "id of a checkpoint's parent"),
            None if run_id is None else str(run_id),
            self.serde.dumps_typed(body),
            self.serde.dumps_typed(told),
            tuple(
                (
                    value_name(channel, version),
                    self.serde.dumps_typed(values[channel]) if channel in values else EMPTY,
                )
                for channel, version in new_versions.items()
            ),
            inherited,
        )
        # Graphs inside a graph have messages of their own.
        is_recorded = self._messages is not None and where.namespace == ""
        messages = _unpacked(values.get(self._messages or "")) if is_recorded else None
        person = self._person(config) if is_recorded else None
        written: list_of[NewMessages] = []
        writing = self._client.store.write(
            self._put,
            where,
            new,
            messages,
            None if messages is None else self._log.find_new(where.thread, messages, person=person),
            written,
            person=person,
            moment=self._client.moment(),
        )

        def done(session_no: int | None) -> None:
            for each in written[-1:]:
                self._log.note(where.thread, each, session_no=session_no)

        return where, writing, done

    def _put(
        self,
        tx: Tx,
        where: ThreadNamespace,
        new: NewCheckpoint,
        messages: Any,
        record: NewMessages | None,
        written: "list_of[NewMessages]",
        *,
        person: Person | None,
        moment: Moment,
    ) -> int | None:
        """Write a checkpoint with the messages that are new in it; return the number of the thread's session."""
        place = checkpoints.find_place(tx, where)
        session_no = None if place is None else place.session_no
        if messages is not None and self._log.is_outdated(where.thread, session_no):
            # The session that the messages were written into is over: the thread has begun again.
            fresh = ThreadRecorder(self._client, profile=self._profile)
            record = fresh.find_new(where.thread, messages, person=person)
        if record is not None:
            session_no = recording.append_new(tx, record, moment=moment).no
            written.append(record)
        elif session_no is None and where.namespace == "":
            head = thread.find_session(tx, self._log.where(where.thread))
            session_no = None if head is None else head.no
        checkpoints.put(tx, where, new, session_no=session_no, known=place)
        return session_no

    def _putting_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> Pending[None]:
        id = check_id(get_checkpoint_id(config) or "", "id of a checkpoint")
        task = check_id(task_id, "id of a task")
        rows = [
            WriteRow(
                id,
                task,
                WRITES_IDX_MAP.get(channel, number),
                task_path,
                channel,
                self.serde.dumps_typed(value),
            )
            for number, (channel, value) in enumerate(writes)
        ]
        return self._client.store.write(checkpoints.put_writes, self._where(config), rows)

    def _deleting(self, thread_id: str) -> Pending[None]:
        name = str(thread_id)
        external = self._log.where(name) if self._messages is not None else None
        return self._client.store.write(
            _delete, name, external, profile=self._profile, moment=self._client.moment()
        )

    def _deleting_runs(self, run_ids: Sequence[str]) -> Pending[None]:
        return self._client.store.write(
            checkpoints.delete_of_runs,
            [str(each) for each in run_ids],
            profile=self._profile,
            loads=self._loads,
        )

    def _copying(self, source: str, target: str) -> Pending[None]:
        return self._client.store.write(
            self._copy, str(source), str(target), moment=self._client.moment()
        )

    def _copy(self, tx: Tx, source: str, target: str, *, moment: Moment) -> None:
        if source == target:
            raise BadInput("A thread cannot be copied to itself; nothing was copied.")
        found = checkpoints.get(tx, ThreadNamespace(self._profile, source), None, loads=self._loads)
        value = None if found is None else found.values.get(self._messages or "")
        fresh = ThreadRecorder(self._client, profile=self._profile)
        given = None if value is None else _unpacked(self._loads(value))
        head = thread.find_session(tx, self._log.where(source))
        person = None if head is None else head.source.person
        record = None if given is None else fresh.find_new(target, given, person=person)
        session_no = None
        if record is not None:
            session_no = recording.append_new(tx, record, moment=moment, with_usage=False).no
        checkpoints.copy_thread(tx, source, target, profile=self._profile, session_no=session_no)

    def _pruning(
        self, thread_ids: Sequence[str], strategy: str
    ) -> Iterator[Callable[[], Pending[None]]]:
        if strategy not in _STRATEGIES:
            raise BadInput(
                f"Threads are pruned with {' or '.join(_STRATEGIES)}, not with {strategy!r:.40}; nothing was deleted."
            )
        for each in thread_ids:
            name = str(each)
            yield lambda name=name: self._client.store.write(  # type: ignore[misc]
                checkpoints.prune,
                name,
                profile=self._profile,
                keep_latest=strategy == "keep_latest",
                loads=self._loads,
            )

    def _reading_history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Pending[dict[str, checkpoints.DeltaHistory]]:
        return self._client.store.read(
            checkpoints.delta_history,
            self._where(config),
            get_checkpoint_id(config),
            channels,
            loads=self._loads,
        )

    def _histories(
        self, found: Mapping[str, checkpoints.DeltaHistory]
    ) -> dict[str, DeltaChannelHistory]:
        made: dict[str, DeltaChannelHistory] = {}
        for channel, history in found.items():
            made[channel] = {"writes": [self._pending(write) for write in history.writes]}
            if history.seed is not None:
                made[channel]["seed"] = self._loads(history.seed)
        return made


class _Listing:
    """Where a listing of a thread is."""

    def __init__(
        self,
        saver: SessionaryCheckpointer,
        name: str,
        config: RunnableConfig | None,
        wanted: Mapping[str, Any] | None,
        before: RunnableConfig | None,
    ) -> None:
        given = (config or {}).get("configurable") or {}
        self._saver = saver
        self._id = given.get("checkpoint_id")
        self._filter = wanted or {}
        self._limit_id = None if before is None else get_checkpoint_id(before)
        # Of one checkpoint, what may come before it is read no further than it.
        self._before = self._limit_id if self._id is None else f"{self._id}\x01"
        self._all = given.get("checkpoint_ns") is None
        self._left: int | None = None
        self._where = ThreadNamespace(saver._profile, name, str(given.get("checkpoint_ns") or ""))
        self._after: CheckpointRow | None = None
        self.is_done = False

    def reading(
        self, limit: int | None
    ) -> Pending[tuple[Sequence[StoredCheckpoint], CheckpointRow | None]]:
        """Read the next page."""
        # Of a page that is filtered, any number may be left.
        is_filtered = bool(self._filter) or self._id is not None
        size = checkpoints.PAGE if limit is None or is_filtered else min(limit, checkpoints.PAGE)
        self._left = limit
        return self._saver._client.store.read(
            checkpoints.list_page,
            self._where,
            after=self._after,
            before=self._before,
            limit=size,
            all_namespaces=self._all,
            matches=self._matches,
            loads=self._saver._loads,
        )

    def take(
        self, page: tuple[Sequence[StoredCheckpoint], CheckpointRow | None]
    ) -> Sequence[StoredCheckpoint]:
        """Return what the page has for the caller."""
        found, self._after = page
        self.is_done = self._after is None or self._id is not None
        return found if self._left is None else found[: self._left]

    def _matches(self, row: CheckpointRow) -> bool:
        if self._id is not None and row.id != self._id:
            return False
        if self._limit_id is not None and row.id >= self._limit_id:
            return False
        if not self._filter:
            return True
        metadata = self._saver._loads((row.metadata_form, row.metadata))
        return all(metadata.get(name) == value for name, value in self._filter.items())


def _unpacked(value: Any) -> Any:
    """What a channel contains; one that is rebuilt from deltas contains it in a snapshot."""
    return value.value if isinstance(value, _DeltaSnapshot) else value


def _delete(
    tx: Tx, name: str, external: ExternalThread | None, *, profile: str, moment: Moment
) -> None:
    if external is not None:
        thread.trash(tx, external, moment=moment)
    checkpoints.delete_thread(tx, name, profile=profile)


def _config(where: ThreadNamespace, id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": where.thread,
            "checkpoint_ns": where.namespace,
            "checkpoint_id": id,
        }
    }

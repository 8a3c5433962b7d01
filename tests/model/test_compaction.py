"""The rules by which a context is compacted, as pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessionary.model.compaction import (
    LONGEST_OUTPUT,
    CompactionLimits,
    CompactionPlan,
    context_size,
    limits_for,
    plan_compaction,
)
from sessionary.model.message import (
    Attachment,
    Body,
    Compaction,
    Entry,
    Message,
    Role,
    Text,
    ToolCall,
    ToolResult,
    body_from_json,
    body_to_json,
    message,
)
from sessionary.model.tokens import estimate
from sessionary.model.transcript import (
    CONTINUE_NOTE,
    RECORD,
    SUMMARY_HEADING,
    ContextFold,
    chat_tokens,
    chats_of,
    fold_context,
    is_shortened,
    latest_compaction,
    marks_of,
    shorten_output,
)
from tests.model.test_transcript import AT, agent, log, user

LIMITS = CompactionLimits(3_000, 2_100)
# A round: the words of its prompt and its answer, and the characters of the output of each tool call between them.
ROUNDS = st.lists(
    st.tuples(
        st.integers(1, 600), st.integers(1, 600), st.lists(st.integers(0, 6_000), max_size=3)
    ),
    min_size=1,
    max_size=10,
)
# How a provider's count compares with our estimate.
SCALES = st.sampled_from([0.3, 0.7, 1.0, 1.6, 3.0])
OVERHEADS = st.sampled_from([0, 300, 2_000, 9_000])


def words(count: int) -> str:
    return "word " * count


def record(**fields: Any) -> Message:
    return Message(Role.SYSTEM, (Text("what happened"),), extra={RECORD: fields})


@dataclass
class Chatting:
    """A log that grows, and is compacted by plans."""

    entries: list[Entry]
    overhead: int = 0
    scale: float = 1.0
    known: ContextFold | None = None

    @property
    def last_seq(self) -> int:
        return len(self.entries)

    @property
    def fold(self) -> ContextFold:
        if self.known is None or self.known.last_seq != self.last_seq:
            self.known = fold_context(self.entries, last_seq=self.last_seq)
        return self.known

    @property
    def current(self) -> Compaction | None:
        mark = latest_compaction(marks_of(self.entries))
        return mark.body if mark is not None and isinstance(mark.body, Compaction) else None

    @property
    def size(self) -> int:
        """What the provider counts."""
        return self.overhead + int(self.scale * sum(map(chat_tokens, self.fold.chats)))

    def add(self, *bodies: Body) -> None:
        for body in bodies:
            self.entries.append(Entry("s", self.last_seq + 1, AT, body))

    def add_round(self, asked: int, answered: int, outputs: list[int]) -> int:
        """Add a round; return the entry of its prompt."""
        self.add(user(words(asked)))
        prompt = self.last_seq
        for length in outputs:
            self.add(agent("", ToolCall("call", "look")))
            self.add(Message(Role.TOOL, (ToolResult("call", "x" * length, "look"),)))
        self.add(agent(words(answered)))
        return prompt

    def plan(self, **options: Any) -> CompactionPlan | None:
        given: dict[str, Any] = {
            "limits": LIMITS,
            "size": self.size,
            "overhead": self.overhead,
        } | options
        bodies = {seq: self.entries[seq - 1].body for seq in given.pop("pinned", ())}
        given["pinned"] = {
            seq: estimate(body.text)
            for seq, body in bodies.items()
            if isinstance(body, Message) and body.role is not Role.TOOL and body.text
        }
        return plan_compaction(self.fold, current=self.current, **given)

    def apply(self, plan: CompactionPlan, summary: str = "What was said.") -> None:
        before = self.current
        if not plan.replaced:
            summary = "" if before is None else before.summary
        self.add(
            Compaction(
                summary,
                plan.through,
                kept=plan.kept,
                shortened=plan.shortened,
                longest_output=plan.longest_output,
            )
        )


def chat_of(rounds: Sequence[tuple[int, int, list[int]]], **fields: Any) -> Chatting:
    made = Chatting([], **fields)
    for each in rounds:
        made.add_round(*each)
    return made


@given(ROUNDS, SCALES, OVERHEADS, st.booleans())
def test_no_plan_cuts_a_call_from_its_result(
    rounds: list[tuple[int, int, list[int]]], scale: float, overhead: int, is_too_long: bool
) -> None:
    chat = chat_of(rounds, scale=scale, overhead=overhead)
    fold = chat.fold

    plan = chat.plan(is_too_long=is_too_long)

    if plan is None:
        return
    assert plan.replaced < len(fold.chats), "the last exchange always stays"
    assert fold.chats[plan.replaced]["role"] != "tool"
    chat.apply(plan)
    for first, second in pairwise(chat.fold.chats):
        assert ("tool_calls" in first) == (second["role"] == "tool")


@given(ROUNDS, ROUNDS, SCALES, st.booleans(), st.sets(st.integers(1, 40), max_size=3))
def test_every_entry_is_summarized_or_kept_or_stays(
    rounds: list[tuple[int, int, list[int]]],
    later: list[tuple[int, int, list[int]]],
    scale: float,
    is_too_long: bool,
    pinned: set[int],
) -> None:
    """Also after several compactions: nothing comes back, and nothing is left out unsummarized."""
    chat = chat_of(rounds, scale=scale)
    for each in (*later, None):
        before, through = chat.fold, 0 if chat.current is None else chat.current.through
        known = [seq for seq in sorted(pinned) if seq <= chat.last_seq]
        plan = chat.plan(pinned=known, is_too_long=is_too_long)
        if plan is not None:
            assert plan.through >= through
            older, newer = before.seqs[: plan.replaced], before.seqs[plan.replaced :]
            chat.apply(plan)
            if plan.replaced:
                assert all(seq <= plan.through for seq in older)
                assert all(seq > plan.through for seq in newer)
                assert chat.fold.seqs == (0, *plan.kept, *newer)
                assert set(plan.kept) <= pinned
            else:
                assert chat.fold.seqs == before.seqs
        if each is not None:
            chat.add_round(*each)


@given(ROUNDS, SCALES, OVERHEADS, st.booleans())
def test_prompts_of_the_running_turn_and_pinned_messages_survive(
    rounds: list[tuple[int, int, list[int]]], scale: float, overhead: int, is_too_long: bool
) -> None:
    chat = Chatting([], overhead, scale)
    prompts = [chat.add_round(*each) for each in rounds]
    running = {prompts[-1], prompts[len(prompts) // 2]}
    pinned = prompts[0]
    tokens = {
        seq: chat_tokens(each) for seq, each in zip(chat.fold.seqs, chat.fold.chats, strict=True)
    }

    for _ in range(3):
        plan = chat.plan(prompts=running, pinned=[pinned], is_too_long=is_too_long)
        if plan is None:
            break
        chat.apply(plan)
        chat.add_round(500, 500, [2_000])

        assert running <= set(chat.fold.seqs)
        # At most the scale's bound of the provider's tokens to an estimated one.
        if tokens[pinned] * 2 <= LIMITS.pinned:
            assert pinned in chat.fold.seqs
        for seq in running:
            at = chat.fold.seqs.index(seq)
            assert chat.fold.chats[at]["content"] == chat.entries[seq - 1].body.text  # type: ignore[union-attr]


@given(ROUNDS, SCALES, OVERHEADS, st.integers(0, 1_000))
def test_a_plan_frees_at_least_the_floor_and_is_not_made_again_at_once(
    rounds: list[tuple[int, int, list[int]]], scale: float, overhead: int, summary: int
) -> None:
    """Otherwise every turn would be compacted, and none would get on."""
    chat = chat_of(rounds, scale=scale, overhead=overhead)
    size = chat.size

    plan = chat.plan()

    if plan is None:
        return
    new = LIMITS.summary if plan.replaced else 0
    assert size - plan.size - new >= LIMITS.floor
    chat.apply(plan, "x" * min(summary, LIMITS.summary * 3))
    assert chat.size <= LIMITS.threshold or chat.plan() is None


@given(ROUNDS, SCALES, OVERHEADS)
def test_a_context_that_is_refused_gets_shorter_each_time_or_is_given_up(
    rounds: list[tuple[int, int, list[int]]], scale: float, overhead: int
) -> None:
    chat = chat_of(rounds, scale=scale, overhead=overhead)
    for _ in range(10):
        before = chat.size
        plan = chat.plan(is_too_long=True)
        if plan is None:
            return
        chat.apply(plan)
        assert chat.size < before
    raise AssertionError("it was compacted again and again")


@given(ROUNDS, ROUNDS, st.booleans())
def test_a_fold_that_is_extended_equals_the_fold_of_the_whole_log(
    rounds: list[tuple[int, int, list[int]]],
    later: list[tuple[int, int, list[int]]],
    is_too_long: bool,
) -> None:
    chat = chat_of(rounds)
    plan = chat.plan(pinned=[1], is_too_long=is_too_long)
    if plan is not None:
        chat.apply(plan)
    fold, known = chat.fold, chat.last_seq
    chat.add(record(kind="pin", entry=1))
    for each in later:
        chat.add_round(*each)

    extended = fold.extended(chat.entries[known:], last_seq=chat.last_seq)

    assert extended == chat.fold


@given(ROUNDS)
def test_a_compaction_is_read_back_as_it_was_written(
    rounds: list[tuple[int, int, list[int]]],
) -> None:
    chat = chat_of(rounds)
    plan = chat.plan(pinned=[1], is_too_long=True)
    if plan is None:
        return
    chat.apply(plan)
    made = chat.current

    assert made is not None
    assert body_from_json("compaction", None, body_to_json(made)) == made


def test_the_last_rounds_stay_word_for_word_as_far_as_they_fit() -> None:
    chat = chat_of([(100, 100, [])] * 30)

    plan = chat.plan()

    assert plan is not None
    chat.apply(plan, "Tea.")
    summary, *rest = chat.fold.chats
    assert summary["content"] == f"{SUMMARY_HEADING}\nTea."
    assert rest[0]["role"] == "user"
    kept = sum(map(chat_tokens, rest))
    assert LIMITS.keep - 300 < kept <= LIMITS.keep


def test_old_tool_outputs_are_shortened_first() -> None:
    """That is cheaper than a summary, and loses nothing: the model can read them back."""
    chat = chat_of([(10, 10, [8_000, 8_000]), (100, 100, [])] + [(10, 10, [])] * 3)
    chat.add_round(200, 200, [])
    chat.add_round(200, 200, [])

    plan = chat.plan(limits=CompactionLimits(6_000, 4_200))

    assert plan is not None
    assert plan.replaced == 0
    chat.apply(plan)
    shortened = [
        (seq, each["content"])
        for seq, each in zip(chat.fold.seqs, chat.fold.chats, strict=True)
        if is_shortened(seq, each)
    ]
    assert [seq for seq, _ in shortened] == [3, 5]
    for seq, content in shortened:
        assert len(content) <= LONGEST_OUTPUT + 200
        assert f"[6,000 characters left out here; read_output with entry {seq} returns" in content


def test_the_files_of_an_old_tool_output_are_named() -> None:
    picture = Attachment("hash", "image/png", "image-1.png")
    (chat,) = chats_of(Message(Role.TOOL, (ToolResult("1", "A cat.", "draw"), picture)))

    shortened = shorten_output(7, chat, LONGEST_OUTPUT)

    assert shortened["content"] == (
        "A cat.\n[attachment: image-1.png]\n"
        "[image-1.png left out here; read_output with entry 7 returns them]"
    )
    assert "attachments" not in shortened
    assert is_shortened(7, shortened)
    assert not is_shortened(7, chat)
    assert chat_tokens(chat) - chat_tokens(shortened) > 1_000


def test_what_was_shortened_more_does_not_grow_again() -> None:
    chat = chat_of([(10, 10, [6_000] * 2)])
    refused = chat.plan(is_too_long=True, limits=CompactionLimits(2_000, 1_400))
    assert refused is not None
    chat.apply(refused)
    lengths = [len(each["content"]) for each in chat.fold.chats if each["role"] == "tool"]
    for _ in range(2):
        chat.add_round(400, 400, [6_000])

    plan = chat.plan()

    assert plan is not None
    chat.apply(plan)
    after = [len(each["content"]) for each in chat.fold.chats if each["role"] == "tool"]
    if plan.replaced:
        assert plan.shortened == 0
    else:
        assert after[:2] == lengths


def test_an_output_that_would_hardly_get_shorter_is_left_as_it_is() -> None:
    chat = chat_of([(10, 10, [LONGEST_OUTPUT + 100])])
    mark = Compaction("", 0, shortened=chat.last_seq, longest_output=LONGEST_OUTPUT)

    chat.add(mark)

    assert [len(each["content"]) for each in chat.fold.chats if each["role"] == "tool"] == [
        LONGEST_OUTPUT + 100
    ]


def test_a_beginning_stays_with_the_note_to_continue_it() -> None:
    chat = chat_of([(200, 200, [])] * 12)
    chat.add(user("Write a poem."), agent("Roses are red " * 60))
    chat.add(record(kind="resumed", continues=True))
    prompt = chat.last_seq - 2

    plan = chat.plan(prompts=[prompt], limits=CompactionLimits(1_000, 700))

    assert plan is not None
    chat.apply(plan)
    beginning, note = chat.fold.chats[-2:]
    assert str(beginning["content"]).startswith("Roses")
    assert note == {"role": "user", "content": CONTINUE_NOTE}
    assert prompt in chat.fold.seqs


def test_a_summary_alone_is_not_summarized_again() -> None:
    chat = chat_of([(300, 300, [])] * 10)
    first = chat.plan()
    assert first is not None
    chat.apply(first, "x" * 4 * LIMITS.summary * 3)
    chat.add(user(words(2_000)))

    assert chat.plan() is None or chat.plan().through > first.through  # type: ignore[union-attr]


def test_records_of_what_happened_are_for_people_only() -> None:
    entries = log(user("one"), record(kind="settings", model="m"), agent("two"))

    assert [each["content"] for each in fold_context(entries, last_seq=3).chats] == ["one", "two"]


def test_the_size_is_what_the_provider_counted_and_what_came_after() -> None:
    chat = chat_of([(100, 100, [])] * 2)
    fold = chat.fold

    newer = sum(map(chat_tokens, fold.chats[2:]))

    assert context_size(fold, reported=1_234, reported_seq=2, overhead=99) == 1_234 + newer
    assert context_size(fold, reported=0, reported_seq=0, overhead=99) == 99 + sum(
        map(chat_tokens, fold.chats)
    )


def test_the_threshold_is_the_smaller_of_both_settings() -> None:
    both = limits_for(10_000, percent=70, at_tokens=5_000)
    by_percent = limits_for(10_000, percent=70, at_tokens=None)
    unknown = limits_for(None, percent=70, at_tokens=7_000)

    assert both == CompactionLimits(10_000, 5_000)
    assert by_percent == CompactionLimits(10_000, 7_000)
    assert unknown == CompactionLimits(10_000, 7_000)
    assert limits_for(None, percent=70, at_tokens=None) is None
    assert limits_for(10_000, percent=0, at_tokens=None) is None


def test_a_pinned_message_that_is_too_long_gives_way_to_others() -> None:
    chat = chat_of([(20, 20, []), (600, 10, []), (20, 20, [])] + [(300, 300, [])] * 8)

    plan = chat.plan(pinned=[1, 3, 5])

    assert plan is not None
    assert plan.kept == (1, 5)


def test_a_message_that_is_pinned_after_it_was_summarized_comes_back() -> None:
    chat = chat_of([(20, 20, [])] + [(300, 300, [])] * 5)
    first = chat.plan()
    assert first is not None
    chat.apply(first)
    assert 1 not in chat.fold.seqs
    for _ in range(4):
        chat.add_round(300, 300, [])

    second = chat.plan(pinned=[1])

    assert second is not None
    chat.apply(second)
    assert chat.fold.seqs[:2] == (0, 1)


def test_what_the_model_said_is_kept_without_its_calls() -> None:
    entries = log(
        message("user", "hello"),
        agent("I look.", ToolCall("c", "look")),
        Message(Role.TOOL, (ToolResult("c", "found"),)),
        agent("done"),
        Compaction("sum", 4, kept=(2, 3, 4)),
    )

    assert fold_context(entries, last_seq=5).chats[1:] == (
        {"role": "assistant", "content": "I look."},
        {"role": "assistant", "content": "done"},
    )

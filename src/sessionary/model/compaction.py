"""When a context is compacted, and what of it stays: pure rules over a folded context."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from sessionary.model.message import Compaction
from sessionary.model.transcript import (
    CONTINUE_NOTE,
    Chat,
    ContextFold,
    chat_tokens,
    shorten_output,
)

# Shares of the model's window: how much stays word for word, how large a summary and the pinned messages may be, how
# much a compaction must free, and under what size shortened tool outputs are enough.
_KEEP = 0.2
_SUMMARY = 0.1
_PINNED = 0.1
_FLOOR = 0.1
_LOW = 0.5
# How many characters of an old tool output the model reads, and of any one if the provider said «too long».
LONGEST_OUTPUT = 2_000
_SHORTEST_OUTPUT = 400
_CHARACTERS_PER_TOKEN = 4
# How much a provider's count may differ from our estimate: beyond that, something else was counted too.
_LEAST_SCALE, _MOST_SCALE = 0.1, 2.0
# The share of a window at which a limit in tokens is taken to stand, if the window is unknown.
_USUAL_SHARE = 0.7


class CompactionLimits(Struct, frozen=True):
    """The sizes, in tokens, by which a context is compacted."""

    window: int
    threshold: int

    @property
    def due(self) -> int:
        """Above what size a context is compacted: a little below the threshold, because a part of it is estimated."""
        return self.threshold - self.window // 50

    @property
    def keep(self) -> int:
        """How much of the end of a context stays word for word."""
        return int(self.window * _KEEP)

    @property
    def summary(self) -> int:
        """How large a summary may be."""
        return int(self.window * _SUMMARY)

    @property
    def pinned(self) -> int:
        """How large the pinned messages may be that stay word for word."""
        return int(self.window * _PINNED)

    @property
    def floor(self) -> int:
        """How much a compaction must free; otherwise the next one would be due at once."""
        return int(self.window * _FLOOR)

    @property
    def low(self) -> int:
        """Under what size it is enough to shorten tool outputs."""
        return min(int(self.window * _LOW), self.threshold)


class CompactionPlan(Struct, frozen=True):
    """What a compaction does to a context.

    The first `replaced` chats are replaced by a summary, which covers the log up to `through`; with 0 of them the
    summary stays as it is. Tool outputs up to the entry `shortened` are cut to `longest_output` characters.
    """

    replaced: int
    through: int
    kept: tuple[int, ...]
    shortened: int
    longest_output: int
    # The estimated size afterwards, without the new summary.
    size: int


def limits_for(
    window: int | None, *, percent: int, at_tokens: int | None
) -> CompactionLimits | None:
    """Return the limits for a model's window; None if it is unknown, or compaction is off.

    `percent` of the window is the threshold, or `at_tokens` if that is less.
    """
    thresholds = [] if at_tokens is None else [at_tokens]
    if window is not None and percent:
        thresholds.append(window * percent // 100)
    if not thresholds:
        return None
    threshold = min(thresholds)
    return CompactionLimits(window or int(threshold / _USUAL_SHARE), threshold)


def context_size(fold: ContextFold, *, reported: int, reported_seq: int, overhead: int = 0) -> int:
    """Return how many tokens a context has.

    `reported` is what the provider counted for the last call, which covered the log up to `reported_seq`; what came
    later is estimated. If nothing was reported, all is estimated, and `overhead` added: the system prompt and the
    tools.
    """
    if not reported:
        return overhead + sum(map(chat_tokens, fold.chats))
    newer = 0
    for seq, chat in zip(reversed(fold.seqs), reversed(fold.chats), strict=True):
        if seq <= reported_seq:
            break
        newer += chat_tokens(chat)
    return reported + newer


def plan_compaction(
    fold: ContextFold,
    *,
    limits: CompactionLimits,
    size: int,
    overhead: int = 0,
    current: Compaction | None = None,
    pinned: Mapping[int, int] | None = None,
    prompts: Collection[int] = (),
    is_too_long: bool = False,
) -> CompactionPlan | None:
    """Return how to compact a context of this size; None if it would not free enough.

    Old tool outputs are shortened if that is enough; otherwise the older part is summarized too. The end of the context
    stays word for word, cut between rounds where possible and never between a call and its result. So do `prompts`,
    the messages of the running turn, and of the `pinned` ones the newest; those may be pinned after they were
    summarized, so their estimated sizes are given. `overhead` is the part of the size that no compaction changes: the
    system prompt and the tools.

    `is_too_long`: the provider has refused the context. Then less stays, and every tool output is shortened.
    """
    before = Compaction("", 0) if current is None else current
    scale = _scale(fold, size - overhead)
    tokens = [int(chat_tokens(chat) * scale) for chat in fold.chats]
    keep = limits.keep // 2 if is_too_long else limits.keep
    cut = _cut(fold, tokens, keep=keep, summarized=before.through)
    through = max(before.through, max(fold.seqs[:cut], default=0))
    shortened = fold.last_seq if is_too_long else max(fold.seqs[:cut], default=0)
    shortened = max(shortened, before.shortened)
    longest = _longest_output(limits, before, is_too_long=is_too_long)
    saved = [
        int((chat_tokens(chat) - chat_tokens(shorten_output(seq, chat, longest))) * scale)
        if seq <= shortened
        else 0
        for seq, chat in zip(fold.seqs, fold.chats, strict=True)
    ]
    left = max(0, size - sum(saved))
    shortening = CompactionPlan(0, before.through, before.kept, shortened, longest, left)
    if size - left >= limits.floor and left <= limits.low:
        return shortening
    # What a summary covers already is summarized again only together with something new, or if it must get shorter.
    if cut and (through > before.through or is_too_long):
        tokens_of = {seq: int(count * scale) for seq, count in (pinned or {}).items()}
        tokens_of |= _messages(fold, tokens)
        kept = _kept(tokens_of, through, pinned=pinned or (), prompts=prompts, limits=limits)
        left = size - sum(tokens[:cut]) + sum(tokens_of[seq] for seq in kept)
        if is_too_long:
            left -= sum(saved[cut:])
        elif through >= before.shortened:
            shortened, longest = 0, 0
        else:
            # What an earlier compaction has shortened stays so: the model reads the same bytes.
            shortened, longest = before.shortened, before.longest_output
        freed = size - left - limits.summary
        if freed >= (1 if is_too_long else limits.floor):
            return CompactionPlan(cut, through, kept, shortened, longest, max(0, left))
    return shortening if is_too_long and any(saved) else None


def _scale(fold: ContextFold, counted: int) -> float:
    """Return how many tokens of the provider there are to an estimated one."""
    estimated = sum(map(chat_tokens, fold.chats))
    return min(_MOST_SCALE, max(_LEAST_SCALE, counted / estimated)) if estimated else 1.0


def _longest_output(limits: CompactionLimits, before: Compaction, *, is_too_long: bool) -> int:
    """Return to how many characters tool outputs are shortened: what was shortened more stays so."""
    longest = LONGEST_OUTPUT
    if is_too_long:
        room = limits.window * _CHARACTERS_PER_TOKEN // 16
        longest = max(_SHORTEST_OUTPUT, min(longest, room))
    return min(longest, before.longest_output) if before.shortened else longest


def _cut(fold: ContextFold, tokens: Sequence[int], *, keep: int, summarized: int) -> int:
    """Return the index of the first chat that stays word for word; the last exchange always does.

    What is kept of the entries up to `summarized` stays together with their summary.
    """
    seqs, chats = fold.seqs, fold.chats
    highest_before = list(accumulate(seqs, max))
    lowest_after = list(accumulate(reversed(seqs), min))[::-1]
    # Where the context may be cut: not before a tool's result, and so that a stretch of the log is left out.
    places = [
        at
        for at in range(1, len(chats))
        if not _belongs_to_previous(chats[at])
        and max(highest_before[at - 1], summarized) < lowest_after[at]
    ]
    if not places:
        return 0
    # How much stays if the context is cut there.
    left = dict(zip(range(len(chats) - 1, -1, -1), accumulate(reversed(tokens)), strict=True))
    cut = next((at for at in places if left[at] <= keep), places[-1])
    # Between two rounds, if enough stays.
    return next(
        (at for at in places if _is_prompt(chats[at]) and keep // 2 <= left[at] <= keep), cut
    )


def _belongs_to_previous(chat: Chat) -> bool:
    """Whether a chat makes no sense without the one before it."""
    return chat["role"] == "tool" or chat["content"] == CONTINUE_NOTE


def _is_prompt(chat: Chat) -> bool:
    return chat["role"] == "user"


def _messages(fold: ContextFold, tokens: Sequence[int]) -> dict[int, int]:
    """Return the tokens of the entries that people and the model have said something in."""
    return {
        seq: count
        for seq, chat, count in zip(fold.seqs, fold.chats, tokens, strict=True)
        if seq and chat["role"] in ("user", "assistant") and chat["content"]
    }


def _kept(
    tokens_of: Mapping[int, int],
    through: int,
    *,
    pinned: Collection[int],
    prompts: Collection[int],
    limits: CompactionLimits,
) -> tuple[int, ...]:
    """Return the entries of the older part that stay word for word."""
    kept = {seq for seq in prompts if seq <= through and seq in tokens_of}
    room = limits.pinned
    for seq in sorted(pinned, reverse=True):
        if seq <= through and seq in tokens_of and tokens_of[seq] <= room:
            kept.add(seq)
            room -= tokens_of[seq]
    return tuple(sorted(kept))

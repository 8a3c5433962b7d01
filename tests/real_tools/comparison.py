"""The content of a conversation in numbers and words: by the tool, and as it was imported."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

Json = dict[str, Any]


@dataclass
class Talk:
    """All texts and tokens, in any order."""

    prompts: list[str] = field(default_factory=list)
    answers: int = 0
    texts: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    results: int = 0
    summaries: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def tokens(self) -> int:
        """Input, input from a cache, and output together."""
        return self.input + self.cached + self.output


def imported(lines: Iterable[str]) -> Talk:
    """What an export in Sessionary's own format says."""
    talk = Talk()
    for line in lines:
        entry = json.loads(line)
        if entry.get("line") == "usage":
            talk.input += entry.get("input_tokens", 0)
            talk.cached += entry.get("cache_read_tokens", 0)
            talk.output += entry.get("output_tokens", 0)
        elif entry.get("line") == "entry":
            _add(talk, entry)
    return talk


def _add(talk: Talk, entry: Json) -> None:
    if entry["kind"] == "compaction":
        talk.summaries += 1
    # What was taken back would be something that the tool did not do.
    assert entry["kind"] != "retraction", entry
    parts = entry.get("parts", ())
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if entry.get("role") == "user":
        talk.prompts += texts
    elif entry.get("role") == "assistant":
        talk.answers += 1
        talk.texts += texts
    talk.calls += [part["name"] for part in parts if part["type"] == "tool_call"]
    talk.results += sum(part["type"] == "tool_result" for part in parts)


def differences(source: Talk, here: Talk, *, has_tokens: bool) -> list[str]:
    """In what the two differ; tools may quote a prompt and cut the end of a text."""
    found = []
    for each in fields(Talk):
        before, after = getattr(source, each.name), getattr(here, each.name)
        if each.name in ("input", "cached", "output") and not has_tokens:
            continue
        if isinstance(before, list):
            before, after = _plain(before), _plain(after)
        if before != after:
            found.append(f"{each.name}: {before} in the source, {after} here")
    return found


def _plain(texts: list[str]) -> list[str]:
    return sorted(text.strip().strip('"') for text in texts)

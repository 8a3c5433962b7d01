"""What a line of Claude Code says: its blocks, and people's words without their wrappers."""

import re
from typing import Any

from sessionary.formats import anthropic_blocks
from sessionary.importers.content import Content

# What the program puts around or beside the words that a person typed.
_BESIDE = re.compile(
    r"<(system-reminder|ide_opened_file|ide_selection|ide_diagnostics)>.*?</\1>\s*", re.DOTALL
)
_COMMAND = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_TYPED = re.compile(r"<(bash-input|user-memory-input)>(.*?)</\1>", re.DOTALL)
_OUTPUT = re.compile(
    r"<(local-command-stdout|local-command-stderr|bash-stdout|bash-stderr)>(.*?)</\1>", re.DOTALL
)
_SIGNS = {"bash-input": "!", "user-memory-input": "#"}
_TOLD = ("<task-notification>", "<local-command-caveat>", "<teammate-message")


def spoken(text: str) -> tuple[str, str]:
    """Who said a text of a user's line, and what: the person, or the program in their name."""
    if "<" not in text:
        return "user", text
    if (command := _COMMAND.search(text)) is not None:
        arguments = _ARGUMENTS.search(text)
        words = [command[1], "" if arguments is None else arguments[1].strip()]
        return "user", " ".join(filter(None, words))
    if (typed := _TYPED.match(text)) is not None:
        return "user", f"{_SIGNS[typed[1]]} {typed[2].strip()}"
    if _OUTPUT.match(text) is not None:
        return "system", "\n".join(each[2] for each in _OUTPUT.finditer(text) if each[2])
    if text.startswith(_TOLD):
        return "system", text
    return "user", _BESIDE.sub("", text).strip() if _BESIDE.search(text) else text


def content_of(given: Any) -> list[Any]:
    """The blocks of a message; a text by itself is one."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    return given if isinstance(given, list) else []


def is_result(block: Any) -> bool:
    """Whether a block is a tool's answer."""
    if type(block) is not dict or block.get("type") != "tool_result":
        return False
    return isinstance(block.get("tool_use_id"), str)


def words_of(blocks: list[Any], *, is_meta: bool) -> tuple[str, Content]:
    """Who said what a user's line says, and what: without what the program put around it."""
    content = Content()
    role = "system" if is_meta else "user"
    for block in blocks:
        is_text = isinstance(block, dict) and block.get("type") == "text"
        if is_meta or not is_text or not isinstance(block.get("text"), str):
            anthropic_blocks.add_block(content, block)
            continue
        who, words = spoken(block["text"])
        content.say(words)
        if who == "system" and len(blocks) == 1:
            role = who
    return role, content


def merged(known: list[Any], more: list[Any]) -> list[Any]:
    """The blocks of an answer after another line of it: a new block, or all so far, grown."""
    if len(more) >= len(known) and all(map(_grows, known, more)):
        return more
    result = list(known)
    for block in more:
        if block in result:
            continue
        if result and _grows(result[-1], block):
            result[-1] = block
        else:
            result.append(block)
    return result


def _grows(old: Any, new: Any) -> bool:
    """Whether a block is an earlier one, perhaps with more in it."""
    if not isinstance(old, dict) or not isinstance(new, dict) or old.get("type") != new.get("type"):
        return bool(old == new)
    if old.get("type") == "tool_use":
        return old.get("id") == new.get("id")
    for name in ("text", "thinking"):
        before, after = old.get(name), new.get(name)
        if isinstance(before, str) and isinstance(after, str):
            return after.startswith(before)
    return bool(old == new)

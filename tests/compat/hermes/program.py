"""A small gateway as one writes it for Hermes: only its imports name another package.

It is not a test: `test_program.py` runs it, and kills it, as its user would.
"""

import json
import sys
from pathlib import Path

from sessionary.compat.hermes.config import GatewayConfig, HomeChannel, Platform, PlatformConfig
from sessionary.compat.hermes.session import (
    SessionEntry,
    SessionSource,
    SessionStore,
    build_session_context,
    build_session_context_prompt,
)
from sessionary.compat.hermes.state import SessionDB

CALL = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}


def configuration() -> GatewayConfig:
    """What the program reads from its own file."""
    return GatewayConfig.from_dict(
        {
            "platforms": {"telegram": {"enabled": "true", "token": "t"}},
            "default_reset_policy": {"mode": "idle", "idle_minutes": 30},
        }
    )


class Gateway:
    """Takes lines in, answers them, keeps the record; compresses what grows too long."""

    def __init__(self) -> None:
        self.config = configuration()
        home = HomeChannel(Platform.TELEGRAM, "1", "Home")
        self.config.platforms[Platform.TELEGRAM] = PlatformConfig(
            enabled=True, token="t", home_channel=home
        )
        self.db = SessionDB()
        self.store = SessionStore(Path("sessions"), self.config)

    def receive(self, chat: str, text: str) -> str:
        """One message and its answer."""
        source = SessionSource(Platform.TELEGRAM, chat, user_id=chat, user_name=f"user {chat}")
        entry = self.store.get_or_create_session(source)
        if text in self.config.reset_triggers:
            fresh = self.store.reset_session(entry.session_key)
            assert fresh is not None
            return f"new session {fresh.session_id}"
        if text.startswith("/title "):
            self.db.set_session_title(entry.session_id, text.removeprefix("/title "))
            return "named"
        if text.startswith("/resume "):
            target = self.db.resolve_session_by_title(text.removeprefix("/resume "))
            if target is None:
                return "no such session"
            resumed = self.db.resolve_resume_session_id(target)
            self.store.switch_session(entry.session_key, resumed)
            return f"resumed with {len(self.store.load_transcript(resumed))} messages"
        if text.startswith("/search "):
            hits = self.db.search_messages(text.removeprefix("/search "), role_filter=["user"])
            return json.dumps([hit["snippet"] for hit in hits])
        return self.answer(source, entry, text)

    def answer(self, source: SessionSource, entry: SessionEntry, text: str) -> str:
        """Run the agent: it calls a tool, then speaks."""
        id = entry.session_id
        context = build_session_context(source, self.config, entry)
        self.db.update_system_prompt(id, build_session_context_prompt(context, redact_pii=True))
        history = self.db.get_messages_as_conversation(id)
        reply = f"answer {len([each for each in history if each['role'] == 'user']) + 1} to {text}"
        self.db.append_message(id, "user", text)
        self.db.append_message(id, "assistant", "", tool_calls=[CALL], finish_reason="tool_calls")
        self.db.append_message(id, "tool", "noon", tool_call_id="call_1", tool_name="clock")
        self.db.append_message(id, "assistant", reply, finish_reason="stop", reasoning="hm")
        self.db.update_token_counts(
            id, 100, 10, model="gpt-4o", billing_provider="openai", api_call_count=2
        )
        self.store.update_session(entry.session_key, last_prompt_tokens=100)
        if len(history) > 9:
            self.compress(entry)
        return reply

    def compress(self, entry: SessionEntry) -> None:
        """Let a summary stand for a long session, in a continuation of it."""
        id = entry.session_id
        if not self.db.try_acquire_compression_lock(id, "gateway"):
            return
        title = self.db.get_session_title(id)
        self.db.end_session(id, "compression")
        new = f"{id}_c"
        self.db.create_session(new, "telegram", model="gpt-4o", parent_session_id=id)
        self.db.replace_messages(new, [{"role": "user", "content": "[summary] so far"}])
        if title:
            self.db.set_session_title(new, self.db.get_next_title_in_lineage(title))
        self.store.switch_session(entry.session_key, new)
        self.db.release_compression_lock(id, "gateway")


def main() -> None:
    """Answer each line `chat text` of standard input on standard output."""
    gateway = Gateway()
    for line in sys.stdin:
        chat, _, text = line.strip().partition(" ")
        print(gateway.receive(chat, text), flush=True)


if __name__ == "__main__":
    main()

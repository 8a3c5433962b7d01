"""The session module that Hermes programs import; `SessionStore` keeps nothing of its own."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sessionary.compat.hermes import chats
from sessionary.compat.hermes.config import GatewayConfig, HomeChannel, Platform, SessionResetPolicy
from sessionary.compat.hermes.context import (
    SessionContext,
    build_session_context,
    build_session_context_prompt,
)
from sessionary.compat.hermes.entry import SessionEntry
from sessionary.compat.hermes.messages import Json
from sessionary.compat.hermes.source import (
    SessionSource,
    build_session_key,
    is_shared_multi_user_session,
    printed,
    to_source,
)
from sessionary.compat.hermes.state import SessionDB
from sessionary.model.key import Isolation, SessionKey, key_for
from sessionary.model.reset import ResetPolicy

__all__ = [
    "GatewayConfig",
    "HomeChannel",
    "Platform",
    "SessionContext",
    "SessionEntry",
    "SessionResetPolicy",
    "SessionSource",
    "SessionStore",
    "build_session_context",
    "build_session_context_prompt",
    "build_session_key",
    "is_shared_multi_user_session",
]

RESTART = "restart_timeout"


class SessionStore:
    """Which session each conversation is on, in the same database as `SessionDB()`.

    `sessions_dir` is taken and not used: there are no files beside the database.
    """

    def __init__(
        self,
        sessions_dir: str | os.PathLike[str] | None,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        *,
        db: SessionDB | None = None,
    ) -> None:
        self.sessions_dir = sessions_dir
        self.config = config
        self._is_busy = has_active_processes_fn or (lambda _: False)
        self._db = SessionDB() if db is None else db
        self._opened = self._db._opened
        # Only to be faster: a key that is not here is looked for in the store.
        self._keys: dict[str, SessionKey] = {}

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """The entry of a source's conversation: found, opened, or begun anew after a reset."""
        place = to_source(source)
        key = key_for(place, profile=self._opened.profile, isolation=self._isolation())
        name = printed(key)
        call = chats.Call(place, self._policy(source, name), anew=force_new)
        entry = self._opened.write(chats.arrive, key, call, moment=self._opened.moment())
        self._keys[name] = key
        entry.origin = source
        return entry

    def update_session(
        self, session_key: str, last_prompt_tokens: int | None = None, **counts: Any
    ) -> None:
        """Note that a session was used, how long its last prompt was, and what it has cost so far."""
        now = self._opened.moment().now.timestamp()
        known = {"touched_at": now, "is_fresh_reset": False}
        if last_prompt_tokens is not None:
            known["last_prompt_tokens"] = last_prompt_tokens
        entry = self._note(session_key, lambda before: before | known)
        given = {name: value for name, value in counts.items() if value is not None}
        if entry is not None and given:
            self._db.update_token_counts(entry.session_id, **given)

    def reset_session(
        self, session_key: str, display_name: str | None = None
    ) -> SessionEntry | None:
        """End a key's session and open its next."""
        key = self._key(session_key)
        if key is None:
            return None
        moment = self._opened.moment()
        return self._opened.write(chats.begin_anew, key, display_name=display_name, moment=moment)

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """Point a key at another session; the old one ends, the target goes on."""
        key = self._key(session_key)
        if key is None:
            return None
        moment = self._opened.moment()
        return self._opened.write(chats.switch, key, target_session_id, moment=moment)

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """The entries, the last active first."""
        found = self._opened.read(chats.entries_of, profile=self._opened.profile)
        since = None if active_minutes is None else self._ago(minutes=active_minutes)
        return [entry for _, entry in found if since is None or entry.updated_at >= since]

    def has_any_sessions(self) -> bool:
        """Whether there was a session before the one that a first message has just opened."""
        return self._db.session_count() > 1

    def append_to_transcript(
        self, session_id: str, message: Mapping[str, Any], skip_db: bool = False
    ) -> None:
        """Add a message. With `skip_db` it is in the record already: nothing is to be done."""
        if not skip_db:
            self._db.ensure_session(session_id)
            self._db.append_messages_batch(session_id, [message])

    def rewrite_transcript(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Let other messages stand for what was said, in one step."""
        self._db.ensure_session(session_id)
        self._db.replace_messages(session_id, messages)

    def load_transcript(self, session_id: str) -> list[Json]:
        """A session's messages; none for an unknown id."""
        return self._db.get_messages_as_conversation(session_id)

    def suspend_session(self, session_key: str) -> bool:
        """Let the next message begin anew; whether the key is known."""
        found = self._note(session_key, lambda known: known | {"suspended": True})
        return found is not None

    def mark_resume_pending(self, session_key: str, reason: str = RESTART) -> bool:
        """Let the next message go on where a restart interrupted; not a suspended one."""
        now = self._opened.moment().now.timestamp()
        marked = {"resume_pending": True, "resume_reason": reason, "last_resume_marked_at": now}
        found = self._note(
            session_key, lambda known: None if known.get("suspended") else known | marked
        )
        return found is not None

    def clear_resume_pending(self, session_key: str) -> bool:
        """Say that a session has gone on; whether it was marked."""
        cleared = {"resume_pending": False, "resume_reason": None, "last_resume_marked_at": None}
        found = self._note(
            session_key, lambda known: known | cleared if known.get("resume_pending") else None
        )
        return found is not None

    def suspend_recently_active(self, max_age_seconds: float = 120) -> int:
        """Suspend what may have been at work when the gateway died; how many sessions."""
        now = self._opened.moment().now
        profile = self._opened.profile
        return self._opened.write(
            chats.suspend_recent, profile=profile, seconds=max_age_seconds, now=now
        )

    def prune_old_entries(self, max_age_days: float) -> int:
        """Let go of keys that nobody used for so long; 0 or less keeps all. How many."""
        if max_age_days <= 0:
            return 0
        pruned = self._opened.write(
            chats.prune,
            profile=self._opened.profile,
            before=self._ago(minutes=max_age_days * 24 * 60),
            keeps=self._is_busy,
            moment=self._opened.moment(),
        )
        self._keys.clear()
        return pruned

    def close(self) -> None:
        """Let go of the store."""
        self._db.close()

    def _isolation(self) -> Isolation:
        return Isolation(self.config.group_sessions_per_user, self.config.thread_sessions_per_user)

    def _policy(self, source: SessionSource, name: str) -> ResetPolicy:
        if self._is_busy(name):
            return ResetPolicy()  # something still runs for it: no reset now
        chosen = self.config.get_reset_policy(source.platform, source.chat_type)
        return chosen.to_policy(self._opened.zone)

    def _note(
        self, session_key: str, change: Callable[[chats.Facts], chats.Facts | None]
    ) -> SessionEntry | None:
        key = self._key(session_key)
        return None if key is None else self._opened.write(chats.note, key, change)

    def _key(self, session_key: str) -> SessionKey | None:
        if session_key not in self._keys:
            found = self._opened.read(chats.find_key, session_key, profile=self._opened.profile)
            if found is None:
                return None
            self._keys[session_key] = found
        return self._keys[session_key]

    def _ago(self, *, minutes: float) -> datetime:
        return self._opened.moment().now - timedelta(minutes=minutes)

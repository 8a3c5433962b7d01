"""Writes the log of `llm`, as it was and as it is."""

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

Json = dict[str, Any]
PICTURE = b"\x89PNG\r\n\x1a\n a picture of a llama"
ATTACHMENTS = (
    "CREATE TABLE attachments(id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);"
)
OLDER = """
CREATE TABLE conversations(id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses(id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
  options_json TEXT, response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INTEGER,
  datetime_utc TEXT, input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, resolved_model TEXT);
CREATE TABLE prompt_attachments(response_id TEXT, attachment_id TEXT, "order" INTEGER);
CREATE TABLE fragments(id INTEGER PRIMARY KEY, hash TEXT, content TEXT);
CREATE TABLE prompt_fragments(response_id TEXT, fragment_id INTEGER, "order" INTEGER);
CREATE TABLE tool_calls(id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, arguments TEXT, tool_call_id TEXT);
CREATE TABLE tool_results(id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, output TEXT,
  tool_call_id TEXT, exception TEXT);
"""
NEWER = """
CREATE TABLE threads(id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE turns(id TEXT PRIMARY KEY, model TEXT, resolved_model TEXT, thread_id TEXT, datetime_utc TEXT,
  input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, input_node_id TEXT, output_node_id TEXT);
CREATE TABLE messages(id TEXT PRIMARY KEY, role TEXT, parts TEXT, provider_metadata TEXT);
CREATE TABLE message_nodes(id TEXT PRIMARY KEY, parent_id TEXT, message_id TEXT, depth INTEGER);
"""
# Since 0.36: a message is named by a hash of itself and all before it.
HASHED = """
CREATE TABLE threads(id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
CREATE TABLE turns(id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT,
  model TEXT, resolved_model TEXT, input_tokens INTEGER, output_tokens INTEGER, token_details TEXT,
  datetime_utc TEXT);
CREATE TABLE messages(hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts(id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
  text TEXT, payload TEXT);
CREATE TABLE fragments(id INTEGER PRIMARY KEY, hash TEXT, content TEXT);
"""


class Log:
    """A log that grows."""

    def __init__(self, folder: Path, *, is_new: bool = False, is_hashed: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "logs.db"
        self._base = sqlite3.connect(self.path)
        self._base.executescript(
            ATTACHMENTS + (HASHED if is_hashed else NEWER if is_new else OLDER)
        )
        self.put("attachments", id="a1", type="image/png", content=PICTURE)
        self._count = 0

    def put(self, table: str, **row: Any) -> None:
        names = ",".join(f'"{name}"' for name in row)
        marks = ",".join("?" * len(row))
        with self._base:
            statement = f"INSERT OR IGNORE INTO {table}({names}) VALUES({marks})"
            self._base.execute(statement, list(row.values()))

    def respond(self, prompt: str, response: str, talk: str | None = "t1", **more: Any) -> str:
        self._count += 1
        id = f"r{self._count:03}"
        row = {
            "id": id,
            "model": "gpt-5",
            "prompt": prompt,
            "response": response,
            "conversation_id": talk,
            "datetime_utc": f"2026-02-01T09:00:{self._count:02}.000000",
            "input_tokens": 100,
            "output_tokens": 9,
            "token_details": json.dumps({"prompt_tokens_details": {"cached_tokens": 40}}),
        }
        self.put("responses", **row | more)
        return id

    def chain(self, *messages: tuple[str, list[Json]]) -> list[str]:
        """Messages behind each other; the nodes they stand at."""
        nodes: list[str] = []
        parent: str | None = None
        for role, parts in messages:
            message = f"m:{role}:{json.dumps(parts)}"
            node = f"{parent or ''}>{message}"
            self.put("messages", id=message, role=role, parts=json.dumps(parts))
            self.put(
                "message_nodes", id=node, parent_id=parent, message_id=message, depth=len(nodes) + 1
            )
            nodes.append(node)
            parent = node
        return nodes

    def hashed(self, *messages: tuple[str, list[Json]]) -> list[str]:
        """Messages behind each other, in the form of 0.36; their hashes."""
        hashes: list[str] = []
        for role, parts in messages:
            parent = hashes[-1] if hashes else None
            named = f"b2:{parent or ''}>{role}:{json.dumps(parts)}"
            self.put("messages", hash=named, parent_hash=parent, role=role)
            for position, part in enumerate(parts):
                payload = {name: part[name] for name in part if name not in ("type", "text")}
                row = {"message_hash": named, "position": position, "type": part["type"]}
                row |= {
                    "id": int(hashlib.sha256(f"{named}#{position}".encode()).hexdigest()[:12], 16)
                }
                given = json.dumps(payload) if payload else None
                self.put("parts", **row, text=part.get("text"), payload=given)
            hashes.append(named)
        return hashes

    def hashed_turn(self, asked: str, answered: str, thread: str = "t1") -> None:
        self._count += 1
        self.put(
            "turns",
            id=f"r{self._count:03}",
            model="gpt-5",
            thread_id=thread,
            datetime_utc=f"2026-02-01T09:00:{self._count:02}+00:00",
            input_tokens=100,
            output_tokens=9,
            token_details=json.dumps({"prompt_tokens_details": {"cached_tokens": 40}}),
            parent_message_hash=asked,
            tip_message_hash=answered,
        )

    def turn(self, asked: str, answered: str, thread: str = "t1") -> None:
        self._count += 1
        self.put(
            "turns",
            id=f"r{self._count:03}",
            model="gpt-5",
            thread_id=thread,
            datetime_utc=f"2026-02-01T09:00:{self._count:02}.000000",
            input_tokens=100,
            output_tokens=9,
            input_node_id=asked,
            output_node_id=answered,
        )

    def close(self) -> None:
        self._base.close()


def a_day_at_the_mill(log: Log) -> None:
    log.put("conversations", id="t1", name="The mill", model="gpt-5")
    log.put("fragments", id=1, hash="h", content="A fragment.")
    first = log.respond("What is in a.txt?", "", system="Be kind.")
    log.put("prompt_fragments", response_id=first, fragment_id=1, order=0)
    log.put("prompt_attachments", response_id=first, attachment_id="a1", order=0)
    log.put(
        "tool_calls",
        response_id=first,
        name="read",
        arguments='{"path": "a.txt"}',
        tool_call_id="c1",
    )
    second = log.respond("", "Flour.", system="Be kind.")
    log.put("tool_results", response_id=second, name="read", output="flour", tool_call_id="c1")
    log.respond("Alone.", "Yes.", None)


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


CALL = {"type": "tool_call", "name": "read", "arguments": {"path": "a.txt"}, "tool_call_id": "c1"}
RESULT = {
    "type": "tool_result",
    "name": "read",
    "output": "flour",
    "tool_call_id": "c1",
    "attachment_ids": ["a1"],
}


def a_day_in_chains(log: Log) -> None:
    log.put("threads", id="t1", name="The mill")
    picture = {"type": "attachment", "attachment_id": "a1"}
    thought = {"type": "reasoning", "text": "I read it"}
    asked = ("user", [*words("What is in a.txt?"), picture])
    nodes = log.chain(
        asked, ("assistant", [thought, CALL]), ("tool", [RESULT]), ("assistant", words("Flour."))
    )
    log.turn(nodes[0], nodes[1])
    log.turn(nodes[2], nodes[3])
    other = log.chain(asked, ("assistant", words("I cannot see.")))
    log.turn(other[0], other[1])


def a_day_by_hash(log: Log) -> None:
    log.put("threads", id="t1", name="The mill")
    log.put("fragments", id=1, hash="h", content="A fragment.")
    asked = {"type": "text", "text_ref": [{"fragment": 1}, {"literal": "What is in a.txt?"}]}
    chain: list[tuple[str, list[Json]]] = [
        ("system", words("Be kind.")),
        ("user", [asked, {"type": "attachment", "attachment": {"id": "a1"}}]),
        (
            "assistant",
            [
                {"type": "reasoning", "text": "I read it"},
                {
                    "type": "tool_call",
                    "name": "read",
                    "arguments": {"path": "a.txt"},
                    "tool_call_id": "c1",
                },
            ],
        ),
        (
            "tool",
            [
                {
                    "type": "tool_result",
                    "name": "read",
                    "output": "flour",
                    "tool_call_id": "c1",
                    "attachments": [{"id": "a1"}],
                }
            ],
        ),
        ("assistant", words("Flour.")),
    ]
    hashes = log.hashed(*chain)
    log.hashed_turn(hashes[1], hashes[2])
    log.hashed_turn(hashes[3], hashes[4])

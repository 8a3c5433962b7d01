"""Every file is read by the importer of the tool that wrote it, and by no other."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary import Sessionary
from sessionary.app import imports
from sessionary.app.imports import ImportRequest, ImportResult
from sessionary.errors import BadInput
from sessionary.importers import registry
from sessionary.importers.registry import Recogniser
from sessionary.testing.importer_world import ImportedStore, files_of
from tests.importers import corpus, write_hermes, write_pi

# The files of each sample that are records; what else it has lies beside them.
BESIDE = ("workspace.yaml", "workspace.json", "history_item.json", "task_metadata.json")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each tool's records."""
    root = tmp_path_factory.mktemp("samples")
    return {name: corpus.sample(name, root / name) for name in corpus.SAMPLES}


@pytest.fixture(params=("sqlite", "postgres"))
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sessionary]:
    """A store of each kind, with nothing in it."""
    home = str(tmp_path / "home")
    if request.param == "sqlite":
        with Sessionary(home=home) as opened:
            yield opened
        return
    with Sessionary(request.getfixturevalue("migrated_url"), home=home) as opened:
        yield opened


def looked(place: Path, tool: str | None = None) -> ImportResult:
    request = imports.request_for(place, tool)
    assert request is not None
    return imports.preview(None, [request])


def records_of(place: Path) -> list[Path]:
    return [path for path in files_of(place) if path.name not in BESIDE]


@pytest.mark.parametrize("name", registry.names())
def test_every_record_is_recognised_as_its_own_tools_and_no_others(
    name: str, samples: dict[str, Path]
) -> None:
    for path in records_of(samples[name]):
        claims = [each.name for each in registry.importers() if each.recognises(path)]

        assert claims == [name], path


@pytest.mark.parametrize("reader", registry.names())
@pytest.mark.parametrize("writer", registry.names())
def test_no_importer_reads_another_tools_records(
    reader: str, writer: str, samples: dict[str, Path]
) -> None:
    if reader == writer or {reader, writer} == {"pi", "openclaw"}:
        # OpenClaw writes Pi's format, so the source named on the command line is believed.
        return
    for path in records_of(samples[writer]):
        try:
            result = looked(path, reader)
        except BadInput as error:
            problem = str(error)
            assert "Nothing was imported" in problem or "nothing was imported" in problem
            continue
        # A transcript without a sign of whose it is can be anyone's who says so.
        assert (reader, path.suffix) == ("hermes", ".jsonl"), path
        assert [each.added for each in result.outcomes] == [1]


@pytest.mark.parametrize("reader", registry.names())
@pytest.mark.parametrize("writer", registry.names())
def test_a_folder_of_another_tool_imports_nothing_and_that_tool_is_named(
    reader: str, writer: str, samples: dict[str, Path]
) -> None:
    if reader == writer or (writer, reader) in {("pi", "openclaw"), ("openclaw", "pi")}:
        return

    with pytest.raises(BadInput) as refused:
        looked(samples[writer], reader)

    assert f"There is no record of {registry.importer(reader).title}" in str(refused.value)
    assert registry.importer(writer).title in str(refused.value)


def test_a_folder_of_every_tool_gives_each_file_to_its_own_importer(
    client: Sessionary, samples: dict[str, Path], tmp_path: Path
) -> None:
    with Sessionary(home=str(tmp_path / "other")) as other:
        alone = {
            name: imports.run(other.app, [ImportRequest(name, place, is_named=True)]).outcomes
            for name, place in samples.items()
        }
    mixed = tmp_path / "mixed"
    for name, place in samples.items():
        shutil.copytree(place, mixed / name)
    # Beside each other in one folder, under no folder of their own.
    loose = mixed / "loose"
    loose.mkdir()
    for name in ("claude-code", "codex", "pi", "gemini-cli", "librechat"):
        for path in records_of(samples[name]):
            shutil.copy(path, loose / path.name)
    (mixed / "notes.md").write_text("# Notes\n")
    (mixed / "lines.jsonl").write_text('{"a":1}\n' * 500)

    request = imports.request_for(mixed)
    assert request == ImportRequest(None, mixed, is_named=True)
    result = imports.run(client.app, [request])

    for outcome in result.outcomes:
        [only] = alone[outcome.tool]
        assert outcome.added == only.added, outcome.tool
        # A second copy of a session adds nothing.
        assert outcome.messages == only.messages, outcome.tool
        assert outcome.units == (
            outcome.imported_units + outcome.unchanged_units + outcome.omitted_units
        )
    assert {each.tool for each in result.outcomes} == set(registry.names())
    [unknown] = result.unknown
    assert {"notes.md", "lines.jsonl"} <= set(unknown.names)
    assert result.failures == ()
    ImportedStore(client.store).check()


def test_a_copied_home_directory_is_searched_where_tools_keep_their_records(
    client: Sessionary, samples: dict[str, Path], tmp_path: Path
) -> None:
    home = tmp_path / "old-laptop" / "mia"
    for name, inside in {
        "claude-code": ".claude",
        "codex": ".codex",
        "pi": ".pi/agent/sessions",
        "openclaw": ".openclaw",
        "hermes": ".hermes",
        "gemini-cli": ".gemini/tmp",
        "opencode": ".local/share/opencode",
        "goose": ".local/share/goose/sessions",
        "llm": ".config/io.datasette.llm",
    }.items():
        shutil.copytree(samples[name], home / inside)
    (home / ".bashrc").write_text("true\n")

    result = imports.run(client.app, [ImportRequest(None, home, is_named=True)])

    found = {each.tool: each.added for each in result.outcomes}
    wanted = {name: looked(samples[name]).outcomes[0].added for name in found}
    assert len(found) == 9
    assert found == wanted
    # Hermes' database, transcripts and web sessions were seen together.
    assert [each.omitted_units for each in result.outcomes] == [0] * 9


def test_a_file_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"type":"event","sessionId":"1","data":"x"}\n' * 50)

    assert imports.request_for(path) is None
    for tool in registry.names():
        with pytest.raises(BadInput, match=r"nothing in its beginning is known"):
            imports.request_for(path, tool)


def test_a_strange_file_where_a_tool_keeps_its_records_is_named_and_not_read(
    client: Sessionary, samples: dict[str, Path], tmp_path: Path
) -> None:
    place = tmp_path / "claude"
    shutil.copytree(samples["claude-code"], place)
    [rollout] = records_of(samples["codex"])
    project = place / "projects" / "-home-mia"
    shutil.copy(rollout, project / "other.jsonl")
    (project / "junk.jsonl").write_text('{"event":"start"}\n' * 6_000)

    result = imports.run(client.app, [ImportRequest("claude-code", place)])

    [outcome] = result.outcomes
    assert outcome.added == 1
    assert (outcome.units, outcome.imported_units, outcome.omitted_units) == (3, 1, 2)
    assert {os.path.basename(each.unit): each.reason for each in outcome.omissions} == {
        "other.jsonl": "it is a record of Codex, not of Claude Code; it was left alone",
        "junk.jsonl": "nothing in it is known as a record of Claude Code; it was left alone",
    }
    assert len(ImportedStore(client.store).heads()) == 1


def test_a_file_of_openclaw_alone_is_distinguished_from_one_of_pi(tmp_path: Path) -> None:
    plain, marked = write_pi.PiSession("one"), write_pi.PiSession("two")
    for session in (plain, marked):
        session.user("a")
    snapshot = {"type": "custom", "customType": "model-snapshot", "data": {"modelId": "m"}}
    marked.lines.insert(1, snapshot)
    first, second = plain.write(tmp_path / "a"), marked.write(tmp_path / "b")
    aside = tmp_path / "c" / "three.jsonl.deleted.2026-02-01"
    aside.parent.mkdir()
    shutil.copy(first, aside)

    tools = [Recogniser().tool_of(path) for path in (first, second, aside)]

    assert [each.name for each in tools if each is not None] == ["pi", "openclaw", "openclaw"]
    request = imports.request_for(first, "openclaw")
    assert request is not None
    assert request.tool == "openclaw"


def test_one_session_of_hermes_alone_is_recognised(tmp_path: Path) -> None:
    web = tmp_path / "web" / "sessions" / "0123456789ab.json"
    write_hermes.web_session(tmp_path / "web", "0123456789ab", write_hermes.talk(), title="Web")
    path = tmp_path / "session.json"
    shutil.copy(web, path)

    result = looked(path)

    assert [(one.tool, one.added) for one in result.outcomes] == [("hermes", 1)]
    assert result.outcomes[0].messages == len(write_hermes.talk())


def test_a_folder_with_more_files_than_are_looked_at_says_so(
    samples: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "many"
    shutil.copytree(samples["codex"], folder / "codex")
    for number in range(5):
        (folder / f"z{number}.json").write_text("{}")
    monkeypatch.setattr(registry, "MOST_FILES", 3)

    result = looked(folder)

    assert [each.added for each in result.outcomes] == [1]
    assert any("has more than 3 files" in each for each in result.failures)


def test_words_in_a_file_of_something_else_make_no_record_of_it(tmp_path: Path) -> None:
    package = {"name": "x", "keywords": ["chat", "history", "messages", "session_id", "mapping"]}
    (tmp_path / "package.json").write_text(json.dumps(package))
    talk = {"conversationId": "a chat", "about": "messages"}
    (tmp_path / "talk.json").write_text(json.dumps(talk))
    (tmp_path / "log.jsonl").write_text(json.dumps({"type": "user", "role": "x"}) + "\n")

    for path in tmp_path.iterdir():
        assert Recogniser().tool_of(path) is None, path


def test_a_long_prompt_hides_no_rollout_of_an_older_release(tmp_path: Path) -> None:
    header = {"id": "t1", "timestamp": "2025-05-01T09:00:00Z", "instructions": "x" * 100_000}
    document = tmp_path / "rollout-2025-05-01-t1.json"
    document.write_text(json.dumps({"session": header, "items": []}))
    lines = tmp_path / "rollout-2025-05-01T09-00-00-t2.jsonl"
    lines.write_text(json.dumps(header) + "\n" + json.dumps({"record_type": "state"}) + "\n")

    for path in (document, lines):
        found = Recogniser().tool_of(path)
        assert found is not None
        assert found.name == "codex"


@pytest.mark.parametrize("kind", [["x"], {"a": 1}, None, 5, True, "x"], ids=repr)
def test_a_line_of_whatever_type_is_nobodys(tmp_path: Path, kind: object) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"type": kind, "value": 1}) + "\n")

    assert Recogniser().tool_of(path) is None

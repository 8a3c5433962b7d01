"""`sessionary search`: what a person reads, what a program reads, and what goes to standard error."""

from pathlib import Path

import pytest

from sessionary import Sessionary
from tests.cli.conftest import Program
from tests.cli.test_start import loaded

HIT = {"session", "id", "seq", "role", "snippet", "text", "at", "score", "before", "after"}


@pytest.fixture
def fruit(sessionary: Program) -> Program:
    sessionary.append("new", "where does a pineapple grow?", "--title", "Fruit")
    sessionary.append("Fruit", "In the tropics.", "--role", "assistant")
    with Sessionary(home=str(sessionary.home)) as client:
        result = {"type": "tool_result", "call_id": "c", "content": "pineapple: 3 results"}
        client.find("Fruit").append("tool", [result])
    sessionary.append("new", "a pineapple \x1b[31mred\x1b[0m \u202egnirts", "--title", "Colours")
    return sessionary


def test_a_hit_shows_session_words_and_how_to_read_on(fruit: Program) -> None:
    answer = fruit("search", "tropics")

    first, second, third, *_ = answer.out.splitlines()
    assert first.startswith("Fruit  terminal, ")
    assert second == "  assistant: In the ⟦tropics⟧."
    assert third.startswith("  sessionary sessions show ")
    shown = fruit(*third.split()[1:])
    assert "In the tropics." in shown.out
    assert answer.err == "1 hit: tropics.\n"


def test_a_program_reads_hits_and_what_was_left_out(fruit: Program) -> None:
    found = fruit("search", "pineapple", "--json").json

    assert found.keys() >= {"items", "next", "total", "more", "relaxed", "step_hits", "behind"}
    assert found.keys() >= {"words", "suggestion", "missing"}
    assert all(hit.keys() >= HIT for hit in found["items"])
    assert {hit["session"]["title"] for hit in found["items"]} == {"Fruit", "Colours"}
    assert (found["total"], found["step_hits"], found["behind"]) == (2, 1, 0)


def test_what_others_wrote_cannot_steer_the_terminal(fruit: Program) -> None:
    answer = fruit("search", "pineapple", "--all-hits")

    assert "\x1b" not in answer.out
    assert "\u202e" not in answer.out


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (["pineapple", "banana"], "Nothing has all of these words"),
        (["pinapple"], "Did you mean: pineapple"),
        (["pineapple"], "1 more in tool output and reasoning; see them with --tools."),
        (["pineapple", "in:Nowhere"], "There is no project 'Nowhere'."),
        (["pineapple", "--limit", "1"], "There is more: --cursor "),
        (["???"], "Nothing found: ???."),
        (["a", "-pineapple"], "1 hit"),
    ],
)
def test_the_answer_says_what_it_did(fruit: Program, asked: list[str], text: str) -> None:
    fruit.append("new", "a mango")
    answer = fruit("search", *asked) if "-pineapple" not in asked else fruit("search", "--", *asked)

    assert answer.code == 0
    assert text in answer.err


def test_pages_are_turned_by_cursor(fruit: Program) -> None:
    first = fruit("search", "pineapple", "--json", "--limit", "1").json
    second = fruit("search", "pineapple", "--json", "--limit", "1", "--cursor", first["next"]).json

    assert second["next"] is None
    assert first["items"][0]["id"] != second["items"][0]["id"]


def test_options_narrow(fruit: Program) -> None:
    def total(*args: str) -> int:
        found: int = fruit("search", "pineapple", "--json", *args).json["total"]
        return found

    assert total("--tools") == 3
    assert total("--session", "Fruit") == 1
    assert total("--source", "telegram") == 0
    assert total("--sort", "newest") == 2
    assert fruit("search", "pineapple", "--session", "Nobody").code == 3


def test_a_search_never_makes_a_store(sessionary: Program) -> None:
    assert sessionary("search", "anything").code == 3
    assert not sessionary.home.exists()


def test_a_damaged_index_is_seen_and_made_again(fruit: Program) -> None:
    assert fruit("search", "pineapple").code == 0
    index = Path(f"{fruit.database}-search")
    data = bytearray(index.read_bytes())
    data[len(data) // 2 :: 512] = b"\xff" * len(data[len(data) // 2 :: 512])
    index.write_bytes(data)

    assert "search index: damaged" in fruit("doctor").out
    assert fruit("search", "pineapple", "--json").json["total"] == 2
    assert ", complete" in fruit("doctor").out


def test_the_index_is_made_again_on_demand(fruit: Program) -> None:
    answer = fruit("rebuild", "--index", "--json")

    assert answer.json["indexed"] >= 4
    assert fruit("search", "pineapple", "--json").json["total"] == 2


def test_a_search_loads_nothing_that_it_does_not_use(fruit: Program) -> None:
    unwanted = {"asyncio", "fastapi", "psycopg", "pydantic_ai", "genai_prices", "uvicorn", "rich"}

    assert loaded(fruit, "search", "pineapple") & unwanted == set()
    assert "sessionary.model.tokenizer" not in loaded(fruit, "sessions", "list")

"""A message cannot leave its quote, nor a tool its fence."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sessionary.model import markdown
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.source import Person
from tests.model.hostile import CORPUS
from tests.model.test_page import HEAD

AT = datetime(2026, 1, 1, tzinfo=UTC)


def rendered(*parts: Part, person: Person | None = None) -> str:
    return markdown.render_entry(Entry("s1", 1, AT, Message(Role.USER, parts, person=person)))


def outline(text: str) -> list[tuple[str, str]]:
    """What stands at the top level: headings and fences, and nothing in quotes."""
    text.encode()
    found = []
    depth = 0
    tokens = MarkdownIt("commonmark").parse(text)
    for index, token in enumerate(tokens):
        depth += (token.type == "blockquote_open") - (token.type == "blockquote_close")
        if depth == 0 and token.type == "heading_open":
            found.append((token.tag, tokens[index + 1].content))
        if depth == 0 and token.type in {"fence", "code_block", "html_block"}:
            found.append((token.type, token.content))
    return found


@pytest.mark.parametrize("text", CORPUS)
def test_message_texts_create_no_headings_and_no_fences(text: str) -> None:
    shown = rendered(Text(text), Reasoning(text)) + rendered(Text("after"))
    assert [tag for tag, _ in outline(shown)] == ["h2", "h2"]


@pytest.mark.parametrize("text", CORPUS)
def test_what_a_tool_says_stays_in_its_fence(text: str) -> None:
    shown = rendered(ToolResult("c", text, text)) + rendered(ToolCall("c", text, text))
    assert [tag for tag, _ in outline(shown)] == ["h2", "fence", "h2", "fence"]


@given(st.text(st.sampled_from("`~ >\n#a<-")))
def test_no_text_leaves_its_fence(text: str) -> None:
    shown = outline(rendered(ToolResult("c", text)) + rendered(Text(text)))
    assert [tag for tag, _ in shown] == ["h2", "fence", "h2"]
    assert shown[1][1].rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("text", CORPUS)
def test_names_and_titles_are_one_line_of_plain_text(text: str) -> None:
    person = Person("p", None, text.strip() or "p")
    shown = rendered(Attachment("0" * 64, text, text), person=person)
    assert len(outline(shown)) == 1
    assert "<" not in MarkdownIt("commonmark", {"html": True}).render(shown).replace(
        "&lt;", ""
    ).replace("<h2>", "").replace("</h2>", "").replace("<p>", "").replace("</p>", "")


def test_a_session_reads_well() -> None:
    whole = markdown.render_head(HEAD) + rendered(
        Text("hello\nthere"), person=Person("7", None, "Ann")
    )
    assert whole.startswith("# s1\n\n- Session: s1\n- From: terminal\n")
    assert whole.endswith("\n## user: Ann · 2026-01-01 00:00:00 UTC\n\n> hello\n> there\n")


def test_a_summary_is_marked_as_one() -> None:
    shown = markdown.render_entry(Entry("s1", 2, AT, Compaction("short", 1)))
    assert shown == "\n## Summary for the model · 2026-01-01 00:00:00 UTC\n\n> short\n"


def test_a_compaction_that_only_shortens_tool_outputs_says_so() -> None:
    only = markdown.render_entry(Entry("s1", 9, AT, Compaction("", 0, shortened=7)))
    both = markdown.render_entry(Entry("s1", 9, AT, Compaction("short", 5, shortened=7)))

    assert only == (
        "\n## For the model, tool outputs up to 7 shortened · 2026-01-01 00:00:00 UTC\n"
    )
    assert both.startswith("\n## Summary for the model, tool outputs up to 7 shortened · ")


@pytest.mark.parametrize("name", ["www.example.org", "https://example.org", "mailto:a@b.org"])
def test_no_name_becomes_a_link(name: str) -> None:
    shown = rendered(Text("hello"), person=Person("7", None, name)).splitlines()[1]
    assert name not in shown
    assert name in shown.replace("\\", "")

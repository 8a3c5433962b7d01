"""Nothing that others write can run, fetch, or leave its place on a page."""

from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from sessionary.model import html_page
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.session import Kind, SessionFolder, SessionHead
from sessionary.model.source import Person, Source
from sessionary.model.usage import UsageTotal
from tests.model.hostile import CORPUS

AT = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = SessionHead(
    no=1,
    id="s1",
    profile="main",
    key=None,
    source=Source("terminal"),
    kind=Kind.CHAT,
    folder=SessionFolder.CHATS,
    title=None,
    title_by=None,
    preview=None,
    model=None,
    project=None,
    pinned=False,
    archived=False,
    read_only=False,
    labels=(),
    began_at=AT,
    last_active_at=AT,
    ended_at=None,
    end_reason=None,
    trashed_at=None,
    last_seq=1,
    base_seq=0,
    read_through=0,
    last_reply_seq=0,
    message_count=1,
    tool_call_count=0,
    usage=UsageTotal(),
    running_turn=None,
    parent_id=None,
    lineage=None,
)
VOID = {"meta", "img", "br", "hr"}
ATTRIBUTES = {
    "a": {"href", "rel", "title"},
    "img": {"alt", "src"},
    "time": {"datetime"},
    "section": {"class"},
    "div": {"dir", "class"},
    "pre": {"dir"},
    "h1": {"dir"},
    "code": {"class"},
    "ol": {"start"},
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
}
TAGS = set(ATTRIBUTES) | {
    "head",
    "title",
    "style",
    "body",
    "main",
    "article",
    "header",
    "dl",
    "dt",
    "dd",
    "bdi",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "p",
    "em",
    "strong",
    "s",
    "ul",
    "li",
    "blockquote",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "br",
    "hr",
}


class Reader(HTMLParser):
    """Reads a page as a browser does, and refuses what must not be on one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            extra = {"style"} if tag in {"td", "th"} else set()
            assert name in ATTRIBUTES.get(tag, set()) | extra, (tag, name)
            if name == "style":
                assert value in {"text-align:left", "text-align:right", "text-align:center"}
            if name == "href":
                assert (value or "").lower().startswith(("http:", "https:", "mailto:")), value
            if name == "src":
                assert (value or "").startswith("data:image/png;base64,")
        if tag == "a":
            assert ("rel", "noopener noreferrer") in attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def read(text: str) -> Reader:
    text.encode()
    assert "\x00" not in text
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def page_of(
    *entries: Entry, head: SessionHead = HEAD, pictures: dict[str, bytes] | None = None
) -> str:
    shown = "".join(html_page.render_entry(each, pictures or {}) for each in entries)
    return (
        html_page.opening(head.title or "x")
        + html_page.session_opening(head)
        + shown
        + html_page.session_closing()
        + html_page.closing()
    )


def entry_with(*parts: object, role: Role = Role.ASSISTANT, person: Person | None = None) -> Entry:
    return Entry("s1", 1, AT, Message(role, tuple(parts), person=person))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", CORPUS)
def test_hostile_words_stay_words_wherever_they_stand(text: str) -> None:
    everywhere = entry_with(
        Text(text),
        Reasoning(text),
        ToolCall(text, text, {text: text}),
        ToolCall("c", "n", text),
        ToolResult("c", text, text),
        ToolResult("c", [text], is_error=True),
        Attachment(text, text, text),
        Attachment("0" * 64, "image/svg+xml", text),
        Unknown({"type": text}),
        person=Person("p", None, text.strip() or "p"),
    )
    summary = Entry("s1", 2, AT, Compaction(text, 1))
    head = replace(
        HEAD,
        title=text,
        preview=text,
        model=text,
        project=text,
        labels=(text,),
        end_reason=text,
        ended_at=AT,
        source=Source("slack", "c", chat_type="group", chat_name=text),
    )
    read(page_of(everywhere, summary, head=head))


def test_a_title_cannot_turn_the_line_around() -> None:
    shown = page_of(head=replace(HEAD, title="abc\u202edef\u2066"))
    assert "\u202e" not in shown
    assert "\u2066" not in shown


def test_markdown_is_rendered() -> None:
    shown = page_of(entry_with(Text("**bold** and `code`\n\n- one\n\n[link](https://a.example)")))
    assert "<strong>bold</strong>" in shown
    assert "<code>code</code>" in shown
    assert '<a href="https://a.example" rel="noopener noreferrer">link</a>' in shown


def test_a_picture_from_elsewhere_becomes_a_link() -> None:
    shown = page_of(entry_with(Text("![cat](https://a.example/cat.png)")))
    assert "<img" not in shown
    assert "[picture: cat]" in shown


def test_a_picture_of_the_record_is_shown_and_other_files_are_named() -> None:
    picture = entry_with(Attachment("a" * 64, "image/png", "cat.png", 3))
    assert html_page.pictures_of(picture) == ["a" * 64]
    assert "data:image/png;base64,YWJj" in page_of(picture, pictures={"a" * 64: b"abc"})
    drawing = entry_with(Attachment("b" * 64, "image/svg+xml", "cat.svg", 3))
    assert html_page.pictures_of(drawing) == []
    assert "<img" not in page_of(drawing, pictures={"b" * 64: b"abc"})
    assert html_page.pictures_of(entry_with(Attachment("a" * 64, "image/png", "x", 2**40))) == []


def test_the_page_forbids_scripts_and_everything_from_elsewhere() -> None:
    shown = page_of()
    assert "default-src 'none'" in shown
    assert "unsafe" not in shown
    assert "http://" not in shown
    assert "https://" not in shown
    assert "prefers-color-scheme: dark" in shown


def test_a_very_long_text_is_shown_as_it_is() -> None:
    shown = page_of(entry_with(Text("*a* " * html_page.MAX_RENDERED)))
    assert "<em>" not in shown

"""What people look for, day by day: the text is in a message, so it is found."""

import pytest

from tests.search.conftest import KINDS, Library, Maker

MESSAGES = (
    "We should rewrite the parser in C++ next year.",
    "C# and F# run on the same machine; plain C does not.",
    "Write to a@b.com or first.last+tag@example.co.uk please.",
    "The bug is in src/app/main.py at line 42.",
    "don't panic, it's only a test",
    "Run it with --dry-run and -flag to see.",
    "Everything is 50% off today",
    "数据库连接失败了",
    "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/x.log'",
    "See https://example.com/path/page.html?id=7&lang=en#top for more.",
    "def get_user_name(self) -> str: return self._name",
    "const userName = getUserName(accountId);",
    "Der Fluß bei Straße 12 ist größer als früher",
    "naïve café résumé",
    "İstanbul'da hava güzel, ISPARTA da",
    "The ﬁnal oﬃce ﬂow",
    "안녕하세요 데이터베이스 연결",
    "日本語のテキストを検索する",
    "カタカナとひらがな",
    "สวัสดีชาวโลก",
    "नमस्ते दुनिया हिन्दी में",
    "اَلسَّلَامُ عَلَيْكُمْ يا مُحَمَّد",
    "שָׁלוֹם עולם",
    "Привет, мир! Ёлка и Йогурт",
    "Γειά σου Κόσμε, ὁ λόγος ΤΕΛΟΣ τέλος",
    "I love it 😀👍🏽 so much",
    "Family 👨‍👩‍👧 and flag 🇩🇪",
    "price: $19.99 (was €25,00)",
    "version 3.51.3 fixed it on 2026-01-31",
    "IP 192.168.0.1:8080 and ::1",
    "foo::bar<T>&& baz->qux[0] != nullptr",
    "a => b, x := y, if (a && b) || !c",
    "wow ??? !!! ...",
    "TODO(ann): fix issue #1234 and PR !56",
    "Hello™ World® 2²=4",
    'She said "never again" and left.',
    "it says OR and AND and NOT in capitals",
    "role:user is a filter, in:box is not",
    "snake_case_name and kebab-case-name and HTTPServerError",
    "ＦＵＬＬＷＩＤＴＨ １２３",
    "e=mc^2; 10^-3",
    "tab\tseparated\nnew line",
    "50,000 items at 99.9% uptime",
    "~/.config/sessionary.toml or %APPDATA%\\sessionary",
)

# What is typed, and which message it is in.
QUERIES = (
    ("C++", 0),
    ("C#", 1),
    ("a@b.com", 2),
    ("first.last+tag@example.co.uk", 2),
    ("src/app/main.py", 3),
    ("main.py", 3),
    ("don't panic", 4),
    ("-flag", 5),
    ("--dry-run", 5),
    ("50% off", 6),
    ("数据库", 7),
    ("连接", 7),
    ("[Errno 2]", 8),
    ("/tmp/x.log", 8),
    ("https://example.com/path/page.html?id=7&lang=en#top", 9),
    ("get_user_name", 10),
    ("self._name", 10),
    ("getUserName", 11),
    ("account id", 11),
    ("strasse", 12),
    ("GRÖSSER", 12),
    ("cafe", 13),
    ("naive resume", 13),
    ("istanbul", 14),
    ("final office flow", 15),
    ("데이터베이스", 16),
    ("연결", 16),
    ("日本語", 17),
    ("検索", 17),
    ("ひらがな", 18),
    ("ชาวโลก", 19),
    ("हिन्दी", 20),
    ("السلام عليكم", 21),
    ("محمد", 21),
    ("שלום", 22),
    ("ЕЛКА", 23),
    ("τελος", 24),
    ("😀", 25),
    ("👍", 25),
    ("👨‍👩‍👧", 26),
    ("🇩🇪", 26),
    ("$19.99", 27),
    ("€25,00", 27),
    ("3.51.3", 28),
    ("2026-01-31", 28),
    ("192.168.0.1:8080", 29),
    ("baz->qux[0]", 30),
    ("foo::bar<T>&&", 30),
    ("=>", 31),
    (":=", 31),
    ("???", 32),
    ("!!! ...", 32),
    ("#1234", 33),
    ("TODO(ann):", 33),
    ("hello world", 34),
    ('"never again"', 35),
    ('"never again" and left.', 35),
    ("OR and AND", 36),
    ("role:user is a filter", 37),
    ("in:box is not", 37),
    ("case name", 38),
    ("kebab-case-name", 38),
    ("server error", 38),
    ("fullwidth 123", 39),
    ("e=mc^2", 40),
    ("separated new", 41),
    ("99.9%", 42),
    ("~/.config/sessionary.toml", 43),
    ("%APPDATA%\\sessionary", 43),
)


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, make_library: Maker) -> Library:
    library = make_library(request.param)
    library.sessions_with(*MESSAGES)
    return library


@pytest.mark.parametrize(("typed", "place"), QUERIES, ids=[typed for typed, _ in QUERIES])
def test_what_is_in_a_message_finds_it(folder: Library, typed: str, place: int) -> None:
    found = folder.find(typed, all_hits=True)

    assert MESSAGES[place] in {hit.text for hit in found}, found.words
    assert not found.relaxed


@pytest.mark.parametrize(
    "typed",
    ["zzz", "see -dry -more", "数据 -连接", '"panic only"', "main.pyc", "=>>", "C+++", "51.3.3"],
)
def test_what_is_in_no_message_finds_none(folder: Library, typed: str) -> None:
    assert folder.texts_of(typed) == set()


def test_a_sign_behind_a_word_makes_another_word(folder: Library) -> None:
    assert folder.texts_of("C++") == {MESSAGES[0]}
    assert folder.texts_of("F#") == {MESSAGES[1]}
    assert folder.texts_of("C") >= {MESSAGES[0], MESSAGES[1]}

"""What a search must find, by reading every text; and texts and queries made by chance."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime

from sessionary.actions.search.index import comparable
from sessionary.model import query as queries
from sessionary.model.query import matches

NOW = datetime(2026, 3, 2, tzinfo=UTC)

WORDS = """
the of and database error file connect timeout user name retry cache index
C++ C# 50% don't it's a@b.com src/app/main.py [Errno 2] --dry-run -flag foo_bar
getUserName HTTPServer v3.51.3 192.168.0.1 x=>y => -> := ??? ... !!! {} - -- | *
OR AND NOT role:user role:x source:web in:box before:2026 tool:shell "a b" " "" "x y"
数据库 数据 连接失败 日本語 テキスト 한국어 สวัสดี हिन्दी مُحَمَّد İstanbul ﬁne naïve
😀 👍🏽 👨\u200d👩\u200d👧 Foo™ ＦＵＬＬ x* *y* **z** (a) 'q' `code` «w» \u200b \ud800 \ue000 \ue12b
-数据 -don't -x -OR OR-x "数据库" a:b:c http://x.y/z?q=1&r=2 #tag @me $5 5€ ½ ² ß ẞ
""".split()  # noqa: SIM905


def text(rng: random.Random) -> str:
    """A message: words in any order, common ones more often."""
    count = rng.choice((1, 2, 3, 4, 5, 8, 12, 20))
    glue = (" ", " ", " ", "  ", "\n", "\t", "")
    texts = []
    for _ in range(count):
        word = WORDS[min(rng.randrange(len(WORDS)), rng.randrange(len(WORDS)))]
        texts += [word, rng.choice(glue)]
    return "".join(texts)


def query(rng: random.Random) -> str:
    """Something to ask: words, phrases, beginnings, exclusions."""
    asked = []
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        word = rng.choice(WORDS)
        form = rng.choice(("{}", "{}", "{}", '"{} {}"', "-{}", "{}*", "{} OR {}"))
        asked.append(form.format(word, rng.choice(WORDS)))
    return " ".join(asked)


def finds(typed: str, text: str) -> bool:
    """Whether a search for what was typed finds a text, filters and relaxing aside."""
    return bool(expected(typed, [text]))


def expected(typed: str, texts: Iterable[str]) -> set[str]:
    """The texts that a search must find: neither more nor fewer."""
    asked = queries.parse(typed, now=NOW)
    is_plain = asked.groups and asked.filters == queries.Filters()
    literal = queries.literal(asked)
    wanted = comparable(typed)
    return {
        text
        for text in texts
        if (is_plain and matches(asked, text))
        or (literal is not None and wanted in comparable(text) and matches(literal, text))
    }

"""What the demo agent plays: a list of scenes, each chosen by words that a person may use."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SIGNATURE = "*Demo agent: this answer is scripted, no model was asked.*"


@dataclass(frozen=True, slots=True)
class Thinks:
    """The agent thinks aloud before what it does next."""

    text: str


@dataclass(frozen=True, slots=True)
class Uses:
    """The agent uses a tool, which answers as written; nothing is run."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answer: str = ""
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Says:
    """The agent says something; `{said}` is what the person wrote."""

    text: str


Act = Thinks | Uses | Says


@dataclass(frozen=True, slots=True)
class Scene:
    """One scripted answer, and the words that call for it."""

    name: str
    words: re.Pattern[str]
    acts: tuple[Act, ...]


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


FAILING = Scene(
    "a failing tool",
    _words("fail(?:s|ed|ing|ure)?", "break", "broken", "crash", "errors?"),
    (
        Thinks(
            "They want to see what happens when a tool fails. I will read a file that is not there."
        ),
        Says("Let me read that file."),
        Uses(
            "read_file",
            {"path": "notes/missing.md"},
            "notes/missing.md: no such file or directory",
            fails=True,
        ),
        Says(
            "The tool failed: `notes/missing.md` does not exist. Nothing was changed. "
            "In a real conversation I would now ask you for the right path."
        ),
    ),
)
EDITING = Scene(
    "an edit",
    _words("edit", "change", "fix", "rename", "refactor", "patch", "diff"),
    (
        Thinks("First read the file, then make the smallest change that does it."),
        Uses(
            "read_file",
            {"path": "greeting.py"},
            'def greet(name):\n    print("Hello " + name)\n',
        ),
        Says("I see it: the name is joined to the text by hand, and nothing is returned."),
        Uses(
            "edit_file",
            {
                "path": "greeting.py",
                "old": 'print("Hello " + name)',
                "new": 'return f"Hello {name}!"',
            },
            "--- a/greeting.py\n+++ b/greeting.py\n@@ -1,2 +1,2 @@\n-def greet(name):\n"
            '-    print("Hello " + name)\n+def greet(name: str) -> str:\n'
            '+    return f"Hello {name}!"\n',
        ),
        Says("Done. `greet` now **returns** the greeting, so that a test can look at it."),
    ),
)
LONG = Scene(
    "a long answer",
    _words("long", "markdown", "explain", "table", "code", "essay", "document"),
    (
        Thinks("A long answer shows headings, lists, a table and code."),
        Says(
            "## How a message becomes a reply\n\n"
            "1. It is **stored** before it is acknowledged.\n"
            "2. A *turn* begins, one at a time per conversation.\n"
            "3. Every step is stored as it finishes.\n"
            "4. The reply is a row in the outbox before it is sent.\n\n"
            "| what | where | since |\n|---|---|---|\n"
            "| inbox | `arrivals` | the first message |\n"
            "| log | `entries` | the first turn |\n"
            "| outbox | `deliveries` | the first reply |\n\n"
            "### In code\n\n"
            "```python\nimport sessionary\n\n"
            "with sessionary.open() as client:\n"
            '    source = sessionary.Source(platform="web", chat_id="notes")\n'
            '    client.session(source).append("user", "hello")\n```\n\n'
            "> A message never changes. A retracted one stays readable.\n\n"
            "- Searching finds every word, in any script: 会話, разговор, συνομιλία.\n"
            "- Nothing here needed the network.\n"
        ),
    ),
)
TOOL = Scene(
    "a tool",
    _words("files?", "list", "ls", "show", "what", "which", "where", "how many", "run", "search"),
    (
        Thinks("I should look before I answer."),
        Uses(
            "list_files",
            {"path": ".", "depth": 1},
            "README.md     4.1 kB\ngreeting.py   0.1 kB\nnotes/        3 files",
        ),
        Says(
            "There are two files and a folder: `README.md`, `greeting.py` and `notes/` "
            "(with three files)."
        ),
    ),
)
GREETING = Scene(
    "a greeting",
    _words(
        "hi", "hello", "hey", "hallo", "hola", "salut", "servus", "good (?:morning|evening|day)"
    ),
    (
        Says(
            "Hello! I am the demo agent, here so that everything can be tried without a model. "
            "Ask me to **list files**, to **fix** something, to **fail**, or for a **long** answer."
        ),
    ),
)
OTHERWISE = Scene(
    "anything else",
    re.compile(""),
    (
        Thinks("No scene fits these words, so I say what I can play."),
        Says(
            "You said: {said}\n\nI am the demo agent and know five scenes. Say *hello*, ask me to "
            "*list files*, to *fix* something, to *fail*, or for a *long* answer."
        ),
    ),
)

SCENES = (FAILING, EDITING, LONG, TOOL, GREETING, OTHERWISE)


def scene_for(said: str) -> Scene:
    """The first scene whose words the person used."""
    return next(scene for scene in SCENES if scene.words.search(said))

"""The texts of the demo store: subjects, tools and answers with placeholders."""

from dataclasses import dataclass

PEOPLE = ("Ada", "Jonas", "Mei", "Ravi", "Sofia", "Tomás", "Yuki", "Zoë")
THINGS = (
    "the backup job", "the invoice parser", "the login page", "the weekly report", "the camera feed",
    "the search index", "the staging cluster", "the garden sensors", "the travel plan", "the API docs",
    "the billing export", "the photo archive", "the mail filter", "the release notes", "the test suite",
)  # fmt: skip
PROJECTS = (("Infrastructure", "#2b5bc7"), ("Website", "#1d7a3d"), ("Household", "#8a5a00"))
# platform, chat type, share of sessions
PLACES = (
    ("telegram", "dm", 24), ("slack", "channel", 18), ("discord", "group", 12), ("terminal", "dm", 16),
    ("web", "dm", 16), ("whatsapp", "dm", 6), ("email", "dm", 4), ("api", "dm", 4),
)  # fmt: skip
MODELS = ("claude-sonnet-4-5", "gpt-5-mini", "gemini-2.5-pro")


@dataclass(frozen=True, slots=True)
class Subject:
    """A conversation in outline: its title, what people say, what the agent does and answers."""

    title: str
    asks: tuple[str, ...]
    answers: tuple[str, ...]
    tools: tuple[tuple[str, dict[str, str], str, bool], ...] = ()


SUBJECTS = (
    Subject(
        "Why {thing} fails at night",
        ("{Thing} failed again at 02:10. Can you look?", "Did it ever work?", "Fix it, please."),
        (
            ("The disk was full: `/var` had **0 bytes** left when it ran. Old snapshots are never "
            "deleted.\n\n1. `backup.timer` starts at 02:00\n2. the copy needs 14 GB\n3. 3 GB are free"),
            ("Yes, until the retention rule was removed in March.\n\n> keep: 7 daily, 4 weekly\n\nThat "
            "line is gone since."),
            ("Done. I put the rule back and ran it once:\n\n| what | before | after |\n|---|---|---|\n"
            "| snapshots | 212 | 11 |\n| free | 0 GB | 61 GB |"),
        ),
        (
            ("bash", {"command": "journalctl -u backup --since yesterday"},
             ("\x1b[2mMar 02 02:10:04\x1b[0m backup[811]: \x1b[31merror:\x1b[0m no space left on device\n"
             "\x1b[2mMar 02 02:10:04\x1b[0m systemd[1]: backup.service: \x1b[1mFailed\x1b[0m"), False),
            ("bash", {"command": "df -h /var"},
             "Filesystem  Size  Used Avail Use% Mounted on\n/dev/sda3   220G  220G     0 100% /var", False),
            ("read_file", {"path": "/etc/backup/retention.toml"}, "no such file or directory", True),
        ),
    ),
    Subject(
        "Refactor {thing}",
        ("Make {thing} easier to test.", "Show me the change.", "And the tests?"),
        (
            ("I split reading from deciding, so that a test needs no files:\n\n```python\n"
            "def due(last: datetime, now: datetime) -> bool:\n    return now - last > timedelta(days=1)\n```"),
            "The diff is above; nothing else changed. `pytest -q` says **48 passed**.",
            "Three new ones, one for each branch. They run in 12 ms.",
        ),
        (
            ("read_file", {"path": "src/jobs.py"},
             "def run():\n    last = read_last()\n    if datetime.now() - last > DAY:\n        go()\n", False),
            ("edit_file", {"path": "src/jobs.py", "old": "    if datetime.now() - last > DAY:\n        go()",
                           "new": "    if due(last, clock.now()):\n        go()"}, "1 replacement", False),
            ("bash", {"command": "pytest -q"},
             "\x1b[32m................................................\x1b[0m\n\x1b[32m48 passed\x1b[0m in 1.92s",
             False),
        ),
    ),
    Subject(
        "Plan for {thing}",
        ("We need a plan for {thing} until Friday.", "What can go wrong?", "Shorter, for the channel."),
        (
            ("A plan in four steps:\n\n- **Today**: collect what exists\n- **Tomorrow**: first version\n"
            "- **Thursday**: review with {person}\n- **Friday**: publish"),
            "Two things: the data comes late (ask {person} today), and nobody owns the review.",
            "> Draft tomorrow, review Thursday with {person}, out on Friday.",
        ),
        (("search_notes", {"query": "{thing}"},
          '{"hits": [{"note": "kickoff", "score": 0.92}, {"note": "budget", "score": 0.41}], "took_ms": 12}',
          False),),
    ),
    Subject(
        "Übersetzung: {thing}",
        ("Übersetze bitte die Notiz über {thing} ins Deutsche.", "Etwas förmlicher."),
        (
            "Hier ist sie:\n\n> Die Änderung ist geprüft und ab Montag wirksam.",
            "> Wir teilen Ihnen mit, dass die Änderung geprüft wurde und am Montag in Kraft tritt.",
        ),
    ),
    Subject(
        "会議のメモ: {thing}",
        ("昨日の会議を要約してください。", "担当者は？"),
        (
            "要点は三つです。\n\n1. 予算は承認されました\n2. 公開は金曜日\n3. 残る問題は検索の速度",
            "検索は {person} さん、公開は全員です。",
        ),
    ),
    Subject(
        "Сводка: {thing}",
        ("Собери сводку за неделю.", "А что осталось?"),
        ("Сделано пять задач из семи; среднее время ответа **42 мс**.", "Две: миграция и отчёт."),
    ),
    Subject(
        "What to cook with chickpeas",
        ("I have chickpeas, spinach and half an hour.", "No onions, please."),
        (
            ("Chana saag. Fry cumin and ginger, add spinach, then the chickpeas; 20 minutes.\n\n- 1 tin "
            "chickpeas\n- 300 g spinach\n- ginger, cumin, lemon"),
            "Then use fennel: the same sweetness, and it keeps its bite.",
        ),
    ),
    Subject(
        "SQL for {thing}",
        ("How many rows did {thing} write per day last week?", "Only failures."),
        (
            ("```sql\nselect date(at) as day, count(*) as rows\nfrom   runs\nwhere  at > now() - interval '7 days'\n"
            "group  by 1 order by 1;\n```\n\nTuesday stands out: 3 times the others."),
            "```sql\n… where state = 'failed'\n```\n\n14 in the week, 12 of them on Tuesday.",
        ),
        (("query", {"sql": "rows of the last 7 days by day"},
          '[{"day": "2026-03-02", "rows": 1204}, {"day": "2026-03-03", "rows": 3811}]', False),),
    ),
)  # fmt: skip

JOBS = (
    ("Morning summary", "Summarise what happened since yesterday.", "Quiet night: 3 mails, no alerts."),
    ("Watch the certificates", "Check when certificates end.", "All good: the next one ends in 41 days."),
)  # fmt: skip

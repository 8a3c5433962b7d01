"""Writes a history as Aider does."""

FIRST = """
# aider chat started at 2026-02-01 09:00:00

> Aider v0.86.0
> Main model: gpt-5 with diff edit format

#### What is in a.txt?
#### Say it briefly.

Flour.

```text
> this is quoted inside an answer
```

> Tokens: 2.1k sent, 300 received.

#### Grind it.

The mill is broken.

"""
SECOND = """
# aider chat started at 2026-02-02 09:00:00

#### Another day.

Yes.

"""

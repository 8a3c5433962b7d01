"""The system prompt: what the configuration says, then where the agent is."""

from sessionary.model.prompt import PromptContext, render

DEFAULT_PROMPT = """\
You are a helpful agent. Answer in the language of the person who writes to you, plainly and to the
point. Say so when you do not know something, and when a tool failed.
"""


def assemble(prompt: str | None, surroundings: PromptContext) -> str:
    """The system prompt of a turn. The same facts give the same bytes.

    What changes least stands first, and the note about a reset last, because it goes away with the
    second turn: a provider's prompt cache holds as far as possible.
    """
    head = DEFAULT_PROMPT if prompt is None else prompt
    return "\n\n".join(filter(None, (head.strip(), render(surroundings))))

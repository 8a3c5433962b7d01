"""Agents: each kind implements the Runner port for a model, a program or a function.

What the author of an agent kind needs is exported here; docs/plugins/agent.md shows how it is used.
"""

from sessionary.agents.registry import AgentContext, AgentKind
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting
from sessionary.engine.ports import Ask, Delta, Event, ProposedCall, Runner, Step, TurnRequest
from sessionary.errors import AgentFailed, BadInput, RetryLater, SessionaryError
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.question import Answer, Decision, NewQuestion, Question, QuestionKind
from sessionary.model.transcript import last_user_text
from sessionary.model.usage import Usage

__all__ = [
    "AgentContext",
    "AgentFailed",
    "AgentKind",
    "Answer",
    "Ask",
    "Attachment",
    "BadInput",
    "Decision",
    "Delta",
    "Event",
    "Message",
    "NewQuestion",
    "ProposedCall",
    "Question",
    "QuestionKind",
    "Reasoning",
    "RetryLater",
    "Role",
    "Runner",
    "Secret",
    "SessionaryError",
    "Setting",
    "Step",
    "Text",
    "ToolCall",
    "ToolResult",
    "TurnRequest",
    "Usage",
    "last_user_text",
]

"""Public names that many programs do not need, and that take time to load."""

from sessionary.actions.search.search import Hit as Hit
from sessionary.actions.search.search import SearchResult as SearchResult
from sessionary.actions.sessions.model_calls import ListedTurn as ListedTurn
from sessionary.actions.sessions.model_calls import ModelCall as ModelCall
from sessionary.actions.sessions.model_calls import SentContext as SentContext
from sessionary.actions.sessions.model_calls import SessionContextSize as SessionContextSize
from sessionary.actions.sessions.overview import Overview as Overview
from sessionary.actions.verify import Checked as Checked
from sessionary.engine.ports import AgentFunction as AgentFunction
from sessionary.engine.ports import AgentOutput as AgentOutput
from sessionary.engine.ports import Delta as Delta
from sessionary.engine.ports import Step as Step
from sessionary.engine.ports import TurnRequest as TurnRequest
from sessionary.formats.message_input import File as File
from sessionary.store.backup import BackupFile as BackupFile
from sessionary.store.backup import BackupReport as BackupReport

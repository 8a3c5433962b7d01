"""Public names that many programs do not need, and that take time to load; `sessionary` gives them out."""

from sessionary.actions.search.search import Hit, SearchResult
from sessionary.actions.sessions.overview import Overview
from sessionary.actions.verify import Checked
from sessionary.engine.ports import Delta, Step, TurnRequest
from sessionary.formats.message_input import File
from sessionary.store.backup import BackupFile, BackupReport

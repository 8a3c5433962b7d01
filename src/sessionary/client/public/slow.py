"""Public names of imports and of the server: they take half a second to load, and programs only annotate with them."""

from sessionary.actions.transfer.jsonl_import import ImportReport as ImportReport
from sessionary.app.imports import Discovery as Discovery
from sessionary.app.imports import ImportResult as ImportResult
from sessionary.app.imports import ToolImport as ToolImport
from sessionary.web.server import Ready as Ready

"""Sessions that another session began."""

from datetime import datetime

from sessionary.formats import shape
from sessionary.importers.base import Begin, Parent
from sessionary.model.session import Kind, Lineage


def begin(native_id: str, began_at: datetime | None, *, parent: object) -> Begin:
    """A session begins: a subagent's, when a parent is named."""
    name = shape.name(parent)
    if name is None or name == native_id:
        return Begin(native_id=native_id, began_at=began_at)
    return Begin(
        native_id=native_id,
        began_at=began_at,
        kind=Kind.SUBAGENT,
        parent=Parent(native_id=name, lineage=Lineage.SUBAGENT),
    )

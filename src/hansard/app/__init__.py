"""The composition root: configuration in, an open house out."""

from hansard.app.house import House, open_house
from hansard.app.session import RunningTurn, Session

__all__ = ["House", "RunningTurn", "Session", "open_house"]

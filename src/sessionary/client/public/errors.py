"""The public errors."""

from sessionary.errors import AgentFailed as AgentFailed
from sessionary.errors import Ambiguous as Ambiguous
from sessionary.errors import BadInput as BadInput
from sessionary.errors import Conflict as Conflict
from sessionary.errors import Damaged as Damaged
from sessionary.errors import NotAllowed as NotAllowed
from sessionary.errors import NotFound as NotFound
from sessionary.errors import Purged as Purged
from sessionary.errors import RetryLater as RetryLater
from sessionary.errors import SessionaryError as SessionaryError
from sessionary.errors import StoreFull as StoreFull
from sessionary.errors import StoreReadOnly as StoreReadOnly
from sessionary.errors import StoreUnavailable as StoreUnavailable
from sessionary.errors import TurnLost as TurnLost
from sessionary.errors import Unreachable as Unreachable
from sessionary.errors import Unreadable as Unreadable

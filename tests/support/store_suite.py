"""The whole suite for a store, for anyone who has one.

Give it the fixture `store` (open, migrated, empty) and let pytest collect it:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
            yield store
            store.close()
"""

from tests.support.store_files import FileSuite
from tests.support.store_folds import CompactionSuite, ForkSuite, ReadingSuite, RetractionSuite
from tests.support.store_lists import ListSuite, PurgeSuite
from tests.support.store_log import LogSuite
from tests.support.store_outbox import FinalizerSuite, LedgerSuite, OutboxSuite
from tests.support.store_prefixes import PrefixSuite
from tests.support.store_routing import MoveSuite, RoutingSuite, SwitchSuite
from tests.support.store_sessions import SessionSuite, TitleSuite
from tests.support.store_turns import InboxSuite, LeaseSuite, TurnSuite


class StoreSuite(
    LogSuite,
    RoutingSuite,
    SwitchSuite,
    MoveSuite,
    TitleSuite,
    SessionSuite,
    ForkSuite,
    RetractionSuite,
    CompactionSuite,
    ReadingSuite,
    InboxSuite,
    TurnSuite,
    LeaseSuite,
    OutboxSuite,
    FinalizerSuite,
    LedgerSuite,
    ListSuite,
    PurgeSuite,
    PrefixSuite,
    FileSuite,
):
    """Every rule that the actions keep on a store."""

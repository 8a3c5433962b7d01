"""The suites that any store must pass, on each of ours."""

from hansard.testing.store_folds import CompactionSuite, ForkSuite, ReadingSuite, RetractionSuite
from hansard.testing.store_lists import ListSuite, PurgeSuite
from hansard.testing.store_log import LogSuite
from hansard.testing.store_outbox import FinalizerSuite, LedgerSuite, OutboxSuite
from hansard.testing.store_routing import RoutingSuite, SwitchSuite
from hansard.testing.store_sessions import SessionSuite, TitleSuite
from hansard.testing.store_turns import InboxSuite, LeaseSuite, TurnSuite


class TestLog(LogSuite): ...


class TestRouting(RoutingSuite): ...


class TestSwitch(SwitchSuite): ...


class TestTitles(TitleSuite): ...


class TestSessions(SessionSuite): ...


class TestForks(ForkSuite): ...


class TestRetractions(RetractionSuite): ...


class TestCompactions(CompactionSuite): ...


class TestReading(ReadingSuite): ...


class TestInbox(InboxSuite): ...


class TestTurn(TurnSuite): ...


class TestLease(LeaseSuite): ...


class TestOutbox(OutboxSuite): ...


class TestFinalizer(FinalizerSuite): ...


class TestLedger(LedgerSuite): ...


class TestList(ListSuite): ...


class TestPurge(PurgeSuite): ...

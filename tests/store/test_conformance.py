"""The suites that any store must pass, on each of ours."""

from hansard.testing.store_log import LogSuite
from hansard.testing.store_routing import RoutingSuite, SwitchSuite


class TestLog(LogSuite): ...


class TestRouting(RoutingSuite): ...


class TestSwitch(SwitchSuite): ...

"""The suites that any store must pass, on each of ours."""

from hansard.testing.store_log import LogSuite


class TestLog(LogSuite): ...

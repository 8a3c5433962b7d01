"""How long the faults go on: a few in every run, many with SESSIONARY_TEST_LONG=1."""

import os

import pytest

SHORT, LONG = 5, 100


@pytest.fixture
def kills() -> int:
    """How often something is killed in one test."""
    return LONG if os.environ.get("SESSIONARY_TEST_LONG") else SHORT

"""A server that speaks OpenAI's interface, and its model."""

from collections.abc import AsyncIterator

import pytest

from sessionary.store.database import Store
from tests.support.model_server import ModelServer
from tests.support.openai_world import OpenAIWorld, openai_world


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as made:
        yield made


@pytest.fixture
async def server(store: Store, model: ModelServer) -> AsyncIterator[OpenAIWorld]:
    async with openai_world(store, model) as made:
        yield made

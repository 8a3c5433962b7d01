"""The public names of the asynchronous client; `sessionary` gives them out."""

from sessionary.client.async_changes import AsyncSubscription
from sessionary.client.async_client import AsyncSessionary
from sessionary.client.async_pages import AsyncHitPage, AsyncPage
from sessionary.client.async_paginator import AsyncHitPaginator, AsyncPaginator
from sessionary.client.async_resources import (
    AsyncAccessResource,
    AsyncArrivalsResource,
    AsyncBindingsResource,
    AsyncDeliveriesResource,
    AsyncImportsResource,
    AsyncProjectsResource,
    AsyncSchedulesResource,
    AsyncTokensResource,
    AsyncUpkeepResource,
)
from sessionary.client.async_session import AsyncSession
from sessionary.client.async_transaction import AsyncTransaction
from sessionary.client.async_turn import AsyncRunningTurn

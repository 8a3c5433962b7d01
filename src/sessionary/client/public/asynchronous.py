"""The public names of the asynchronous client."""

from sessionary.client.async_changes import AsyncSubscription as AsyncSubscription
from sessionary.client.async_client import AsyncSessionary as AsyncSessionary
from sessionary.client.async_pages import AsyncHitPage as AsyncHitPage
from sessionary.client.async_pages import AsyncPage as AsyncPage
from sessionary.client.async_paginator import AsyncHitPaginator as AsyncHitPaginator
from sessionary.client.async_paginator import AsyncPaginator as AsyncPaginator
from sessionary.client.async_resources import AsyncAccessResource as AsyncAccessResource
from sessionary.client.async_resources import AsyncArrivalsResource as AsyncArrivalsResource
from sessionary.client.async_resources import AsyncBindingsResource as AsyncBindingsResource
from sessionary.client.async_resources import AsyncDeliveriesResource as AsyncDeliveriesResource
from sessionary.client.async_resources import AsyncImportsResource as AsyncImportsResource
from sessionary.client.async_resources import AsyncProjectsResource as AsyncProjectsResource
from sessionary.client.async_resources import AsyncSchedulesResource as AsyncSchedulesResource
from sessionary.client.async_resources import AsyncTokensResource as AsyncTokensResource
from sessionary.client.async_resources import AsyncUpkeepResource as AsyncUpkeepResource
from sessionary.client.async_session import AsyncSession as AsyncSession
from sessionary.client.async_transaction import AsyncTransaction as AsyncTransaction
from sessionary.client.async_turn import AsyncRunningTurn as AsyncRunningTurn

"""`/v1/models`: the agents, and the models that may be chosen for them."""

from typing import Any

from msgspec import Struct
from starlette.responses import Response

from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.model.choice import AgentOffer, ChoiceCatalog
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.context import Caller, WebContext
from sessionary.web.openai.errors import ApiError
from sessionary.web.responses import json_response
from sessionary.web.routing import api_router

# Whose agent answers where no other was chosen.
PLATFORM = "api"
OWNER = "sessionary"
# OpenAI's clients want to know when a model was made; agents have no such time.
_CREATED = 0
_LONGEST = 300
router = api_router(prefix="/v1", include_in_schema=False)


class ModelChoice(Struct, frozen=True):
    """The agent that answers, and the model that it is to ask; None for the agent's own."""

    agent: str
    model: str | None = None


def find_model(catalog: ChoiceCatalog, name: str) -> ModelChoice | None:
    """Return what a name of a model means; None if there is no such model, or several agents offer it.

    It is the name of an agent, `agent/model`, or the name of a model that one agent offers.
    """
    if name in catalog.agents:
        return ModelChoice(name)
    agent, slash, model = name.partition("/")
    if slash and (offer := catalog.agents.get(agent)) is not None:
        found = _model_of(offer, model)
        if found is not None:
            return _chosen(offer, found)
    offering = [
        (offer, found)
        for offer in catalog.agents.values()
        if (found := _model_of(offer, name)) is not None
    ]
    return _chosen(*offering[0]) if len(offering) == 1 else None


def list_models(catalog: ChoiceCatalog) -> list[str]:
    """Return the names of all models: the agents, and `agent/model` for what else they offer."""
    names = list(catalog.agents)
    for offer in catalog.agents.values():
        names += [f"{offer.name}/{model}" for model in offer.models]
    return names


def engine_of(context: WebContext, caller: Caller) -> Engine:
    """The engine that serves a caller; without one there is nobody to answer."""
    engine = context.engine
    if engine is None or engine.context.profile != caller.profile:
        raise ApiError(
            503,
            "No agent is attached to this server for your token's profile; nothing was stored. "
            "Start the server with `sessionary serve` for that profile.",
            code="no_agent",
            retry=False,
        )
    return engine


def choose_model(context: EngineContext, name: str) -> ModelChoice:
    """Return the agent and model that a request names; raise 404 `model_not_found` if there is none."""
    catalog = context.catalog
    if catalog.only is not None:
        return ModelChoice(catalog.only)
    found = find_model(catalog, name)
    if found is None:
        raise unknown_model(catalog, name)
    return found


def unknown_model(catalog: ChoiceCatalog, name: str) -> ApiError:
    """The error for a model that there is not."""
    there_are = ", ".join(list_models(catalog)[:20]) or "none"
    return ApiError(
        404,
        f"The model {name[:_LONGEST]!r} does not exist here. There are: {there_are}.",
        code="model_not_found",
        param="model",
    )


@router.get("/models")
async def get_models(context: ContextDep, caller: Reader) -> Response:
    """List the models: the agents by their names, and `agent/model` for each model that may be chosen."""
    names = list_models(engine_of(context, caller).context.catalog)
    return json_response({"object": "list", "data": [model_json(name) for name in names]})


@router.get("/models/{model_id:path}")
async def get_model(model_id: str, context: ContextDep, caller: Reader) -> Response:
    """Get one model by its name."""
    catalog = engine_of(context, caller).context.catalog
    if find_model(catalog, model_id) is None:
        raise unknown_model(catalog, model_id)
    return json_response(model_json(model_id))


def model_json(name: str) -> dict[str, Any]:
    """A model as OpenAI's interface describes it."""
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": OWNER}


def _model_of(offer: AgentOffer, name: str) -> str | None:
    """Return the model of an agent with this name, with or without its provider."""
    if name in offer.models:
        return name
    short = [each for each in offer.models if each.partition(":")[2] == name]
    return short[0] if len(short) == 1 else None


def _chosen(offer: AgentOffer, model: str) -> ModelChoice:
    return ModelChoice(offer.name, None if model == offer.model else model)

"""What a request to `/v1/responses` asks: a field that is wrong, or cannot be honoured, is refused by its name."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.model import codec
from sessionary.model.turn_options import ClientTool, OutputFormat, TurnOptions
from sessionary.web.openai.conversations import checked_metadata
from sessionary.web.openai.errors import ApiError

MOST_TOOLS = 128
_LONGEST_NAME = 300
_LONGEST_TOOL_NAME = 64
_LONGEST_TEXT = 1_000_000
ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
_INCLUDES = frozenset(
    {
        ENCRYPTED,
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_FORMATS = ("text", "json_object", "json_schema")
# They would change the answer, and there is nothing here that could do what they ask.
_NOT_HONOURED = ("prompt", "max_tool_calls", "moderation", "top_logprobs")


class Repeated(Struct, frozen=True, omit_defaults=True):
    """What a response repeats of its request, besides the options of the turn; it is stored with the message."""

    model: str
    metadata: Mapping[str, str] = {}
    store: bool = True
    background: bool = False
    previous_response_id: str | None = None
    include: tuple[str, ...] = ()
    effort: str | None = None
    truncation: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # How many characters of the instructions are the system messages that the conversation began with.
    system_length: int = 0


class ResponseRequest(Struct, frozen=True):
    """A request for a response."""

    repeated: Repeated
    input: Sequence[Any]
    options: TurnOptions
    conversation: str | None = None
    # The session that `metadata.session` names.
    session: str | None = None
    person: str | None = None
    is_streamed: bool = False


class _Fields:
    """The fields of an object in a request; a wrong one is refused by its name."""

    def __init__(self, given: Mapping[str, Any], within: str = "") -> None:
        self._given = given
        self._within = within

    def param(self, name: str) -> str:
        return f"{self._within}.{name}" if self._within else name

    def refused(self, name: str, why: str, code: str = "invalid_value") -> ApiError:
        """The error for a field."""
        param = self.param(name)
        return ApiError(400, f"`{param}` {why} Nothing was stored.", code=code, param=param)

    def raw(self, name: str) -> Any:
        return self._given.get(name)

    def text(self, name: str, *, most: int = _LONGEST_NAME) -> str | None:
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.refused(name, "is a text.", "invalid_type")
        if len(value) > most:
            raise self.refused(name, f"has at most {most:,} characters.")
        return codec.storable_text(value)

    def flag(self, name: str) -> bool | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise self.refused(name, "is true or false.", "invalid_type")
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refused(name, "is a number.", "invalid_type")
        if not low <= value <= high:
            raise self.refused(name, f"is a number from {low:g} to {high:g}.")
        return value

    def whole(self, name: str, low: int, high: int) -> int | None:
        value = self.number(name, low, high)
        if value is not None and not isinstance(value, int):
            raise self.refused(name, "is a whole number.", "invalid_type")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        value = self.text(name)
        if value is not None and value not in choices:
            raise self.refused(name, f"is one of {', '.join(choices)}.")
        return value

    def object(self, name: str) -> "_Fields | None":
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refused(name, "is an object.", "invalid_type")
        return _Fields(value, self.param(name))

    def items(self, name: str, most: int) -> list[Any]:
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refused(name, "is a list.", "invalid_type")
        if len(value) > most:
            raise self.refused(name, f"has at most {most:,} entries.")
        return value


def read_request(body: Any) -> ResponseRequest:
    """Check a request; raise `ApiError` with the field that is wrong."""
    if not isinstance(body, dict):
        raise ApiError(400, "Send a JSON object; nothing was stored.", code="invalid_type")
    fields = _Fields(body)
    for name in _NOT_HONOURED:
        if fields.raw(name):
            raise fields.refused(name, "cannot be honoured here.", "unsupported_parameter")
    model = fields.text("model")
    if not model:
        raise fields.refused("model", "is missing: name an agent, or a model of one.")
    metadata = checked_metadata(fields.raw("metadata"))
    is_background = fields.flag("background") or False
    is_stored = fields.flag("store") is not False
    if is_background and not is_stored:
        raise fields.refused("background", "needs `store`: it is asked for later.")
    previous, conversation = fields.text("previous_response_id"), _conversation(fields)
    if previous is not None and conversation is not None:
        raise fields.refused(
            "previous_response_id", "and `conversation` both say where to go on: send one of them."
        )
    includes = _includes(fields)
    options, effort = _options(fields)
    repeated = Repeated(
        model,
        metadata,
        is_stored,
        is_background,
        previous,
        (ENCRYPTED,) if ENCRYPTED in includes else (),
        effort,
        fields.text("truncation"),
        fields.text("user"),
        fields.text("safety_identifier"),
        fields.text("prompt_cache_key"),
    )
    return ResponseRequest(
        repeated,
        _input(fields),
        options,
        conversation,
        metadata.get("session") or metadata.get("session_id"),
        repeated.safety_identifier or repeated.user,
        fields.flag("stream") or False,
    )


def _input(fields: _Fields) -> Sequence[Any]:
    given = fields.raw("input")
    if isinstance(given, str) and given:
        return [{"type": "message", "role": "user", "content": given}]
    if isinstance(given, list) and given:
        return given
    raise fields.refused("input", "is a text or a list of items, and not empty.", "invalid_type")


def _conversation(fields: _Fields) -> str | None:
    if not isinstance(fields.raw("conversation"), dict):
        return fields.text("conversation")
    named = fields.object("conversation")
    assert named is not None
    id = named.text("id")
    if not id:
        raise named.refused("id", "is missing.")
    return id


def _includes(fields: _Fields) -> list[Any]:
    given = fields.items("include", len(_INCLUDES) * 2)
    for each in given:
        if not isinstance(each, str) or each not in _INCLUDES:
            why = (
                "the probabilities of words are not known here" if each == _LOGPROBS else "unknown"
            )
            raise fields.refused("include", f"has {each!a:.60}: {why}.", "unsupported_value")
    return given


def _options(fields: _Fields) -> tuple[TurnOptions, str | None]:
    """The options of the turn, and the effort as it was asked for."""
    settings: Json = {
        "temperature": fields.number("temperature", 0, 2),
        "top_p": fields.number("top_p", 0, 1),
        "max_tokens": fields.whole("max_output_tokens", 1, 10_000_000),
        "parallel_tool_calls": fields.flag("parallel_tool_calls"),
    }
    reasoning = fields.object("reasoning")
    effort = None if reasoning is None else reasoning.choice("effort", _EFFORTS)
    if effort is not None:
        settings["thinking"] = False if effort == "none" else effort
    text = fields.object("text")
    tools = _tools(fields)
    tools, choice = _tool_choice(fields, tools)
    options = TurnOptions(
        instructions=fields.text("instructions", most=_LONGEST_TEXT) or "",
        tools=tuple(tools),
        tool_choice=choice,
        settings={name: value for name, value in settings.items() if value is not None},
        output=None if text is None else _output(text.object("format")),
    )
    return options, effort


def _output(given: _Fields | None) -> OutputFormat | None:
    kind = None if given is None else given.choice("type", _FORMATS)
    if given is None or kind in (None, "text"):
        return None
    if kind == "json_object":
        return OutputFormat()
    schema = given.raw("schema")
    if not isinstance(schema, dict):
        raise given.refused("schema", "is a JSON schema.", "invalid_type")
    return OutputFormat(
        schema,
        given.text("name", most=_LONGEST_TOOL_NAME),
        given.text("description", most=_LONGEST_TEXT),
        given.flag("strict"),
    )


def _tools(fields: _Fields) -> list[ClientTool]:
    made: dict[str, ClientTool] = {}
    for number, given in enumerate(fields.items("tools", MOST_TOOLS)):
        tool = _Fields(coerce.record(given), f"tools[{number}]")
        kind = tool.raw("type")
        if kind != "function":
            raise tool.refused(
                "type",
                f"is function: tools of type {kind!a:.60} do not run here. The agent has tools of its own.",
                "unsupported_value",
            )
        name = tool.text("name", most=_LONGEST_TOOL_NAME)
        if not name or name in made:
            raise tool.refused("name", "is missing." if not name else "is there twice.")
        parameters = tool.raw("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            raise tool.refused("parameters", "are a JSON schema.", "invalid_type")
        description = tool.text("description", most=_LONGEST_TEXT) or ""
        made[name] = ClientTool(name, description, parameters or {}, tool.flag("strict"))
    return list(made.values())


def _tool_choice(
    fields: _Fields, tools: list[ClientTool]
) -> tuple[list[ClientTool], str | tuple[str, ...]]:
    """The tools that may be called, and which of them must be."""
    given = fields.raw("tool_choice")
    if given is None or isinstance(given, str):
        match fields.choice("tool_choice", ("auto", "none", "required")):
            case "none":
                return [], "auto"
            case "required":
                if not tools:
                    raise fields.refused("tool_choice", "is required, but there are no `tools`.")
                return tools, "required"
        return tools, "auto"
    chosen = fields.object("tool_choice")
    assert chosen is not None
    names = {each.name for each in tools}
    match chosen.raw("type"):
        case "function":
            name = chosen.text("name") or ""
            if name not in names:
                raise chosen.refused("name", "is none of the `tools`.")
            return tools, (name,)
        case "allowed_tools":
            listed = [coerce.record(each) for each in chosen.items("tools", MOST_TOOLS)]
            allowed = {coerce.text(each.get("name")) for each in listed}
            if not allowed or not allowed <= names:
                raise chosen.refused("tools", "has a function that is none of the `tools`.")
            kept = [each for each in tools if each.name in allowed]
            mode = chosen.choice("mode", ("auto", "required"))
            return kept, "required" if mode == "required" else "auto"
    raise chosen.refused("type", "is function or allowed_tools.", "unsupported_value")

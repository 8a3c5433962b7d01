"""What a provider's failure means for the turn. Imported by `provider` alone."""

from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    UserError,
)

from sessionary.errors import AgentFailed, BadInput, NotAllowed, RetryLater, SessionaryError
from sessionary.model.terminal import one_line

FAILURES = (AgentRunError, UserError)

_LONGEST = 300
_TRANSIENT = (
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
)
_RETRIED_STATUSES = {408, 409, 425, 500, 502, 503, 504, 529}


def translated(error: AgentRunError | UserError, model: str) -> SessionaryError:
    """The error a caller can do something about; `RetryLater` for what may pass by itself."""
    after = getattr(error, "retry_after", None) or 0.0
    match error:
        case ModelRateLimitError():
            return RetryLater(
                f"The model provider asks to wait: too many requests ({model}).", after
            )
        case ModelQuotaExceededError():
            return NotAllowed(f"The model provider says that the quota is used up: {_said(error)}")
        case ModelAuthenticationError():
            return NotAllowed(
                f"The model provider refused the key for {model}: check that it is valid and may "
                "use this model."
            )
        case ModelContextWindowExceededError():
            return BadInput(
                f"The conversation is longer than {model} can read: compact it, or begin a new one."
            )
        case ModelNotFoundError():
            return BadInput(f"The model provider knows no model {model}: {_said(error)}")
        case ModelRequestRejectedError():
            return BadInput(f"The model provider refused the request: {_said(error)}")
        case _ if is_transient(error):
            return RetryLater(f"The model provider cannot answer now: {_said(error)}", after)
        case UserError():
            return BadInput(f"The model {model} cannot be used: {_said(error)}")
        case _:
            return AgentFailed(f"The model {model} failed: {_said(error)}")


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ModelHTTPError):
        return error.status_code in _RETRIED_STATUSES
    return isinstance(error, _TRANSIENT)


def _said(error: AgentRunError | UserError) -> str:
    """The provider's own words on one line, without the request."""
    body = error.body if isinstance(error, ModelAPIError) else None
    match body:
        case {"error": {"message": str(words)}} | {"message": str(words)}:
            found = words
        case _:
            found = str(error)
    status = f" (status {error.status_code})" if isinstance(error, ModelHTTPError) else ""
    return one_line(found, _LONGEST) + status

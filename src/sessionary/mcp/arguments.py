"""What a caller gives a tool, looked at before anything is done with it."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from sessionary.errors import BadInput
from sessionary.model.terminal import one_line

_WANTED = {str: "a text", int: "a whole number"}
_KINDS = {list: "a list", dict: "an object", bool: "true or false", type(None): "null"}
_SHOWN = 60


def check(tool: str, method: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse, in a line that says what to change, what the tool does not take."""
    known = inspect.signature(method).parameters
    for name in given:
        if name not in known:
            takes = ", ".join(known)
            raise BadInput(f"{tool} has no argument {_shown(name)}; it takes {takes}.")
    for name, parameter in known.items():
        if name in given:
            _check_value(tool, name, given[name], parameter.annotation)
        elif parameter.default is parameter.empty:
            raise BadInput(f"{tool} needs the argument '{name}'; nothing was done.")


def _check_value(tool: str, name: str, value: Any, annotation: Any) -> None:
    kinds = get_args(annotation) or (annotation,)
    if value is None and type(None) in kinds:
        return
    wanted = int if int in kinds else str
    if _is_whole(value) if wanted is int else isinstance(value, str):
        return
    raise BadInput(f"'{name}' of {tool} is {_WANTED[wanted]}, not {_told(value)}.")


def _is_whole(value: Any) -> bool:
    """Models also write numbers as texts, or with a point and nothing behind it."""
    if isinstance(value, bool):
        return False
    if isinstance(value, float):
        return value.is_integer()
    if isinstance(value, str):
        return value.strip().removeprefix("-").isdecimal()
    return isinstance(value, int)


def _told(value: Any) -> str:
    return _KINDS.get(type(value)) or _shown(value)


def _shown(value: Any) -> str:
    return repr(one_line(str(value), _SHOWN)) if isinstance(value, str) else str(value)[:_SHOWN]

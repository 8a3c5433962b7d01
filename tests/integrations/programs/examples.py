"""Runs examples of the documentation as they stand, one after the other, each with a home of its own."""

import json
import os
import sys
import traceback
import warnings


def main() -> None:
    """Print what became of each: nothing, or why it failed."""
    warnings.simplefilter("ignore")
    found: dict[str, str] = {}
    for name, (text, home) in json.loads(sys.stdin.read()).items():
        os.environ["SESSIONARY_HOME"] = home
        if name.startswith("OpenAI"):
            _speak_chat_completions()
        try:
            exec(compile(text, name, "exec"), {"__name__": "example"})
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    print(f"\n{json.dumps(found)}", flush=True)


def _speak_chat_completions() -> None:
    """The model server of the tests does not speak the Responses interface."""
    from agents import set_default_openai_api, set_tracing_disabled

    set_default_openai_api("chat_completions")
    set_tracing_disabled(True)


if __name__ == "__main__":
    main()

"""Runs other agents' tools against a fake model and compares what they recorded with what was imported.

    ./dev real-tools                  every tool
    ./dev real-tools codex llm        only these, by the name of their program
    ./dev real-tools --fixtures       also renew the records that the ordinary tests read

Needs node 20 or newer with npm, Python 3.11 or newer, and Linux with `unshare` and user namespaces. The tools
are installed by their names in the registries of npm and PyPI (some gigabytes) into a scratch directory,
and then run in a network that has nothing but loopback: they reach no service of anyone's. The fake model
server tells them what to do: read a file, run a command, edit the file, in two or more starts.
It prints the table of docs/importing.md and writes it there.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.real_tools.comparison import Talk, differences, imported
from tests.real_tools.recorder import program_in
from tests.real_tools.records import keep
from tests.real_tools.tools import NOT_RUN, TOOLS, Tool

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "importing.md"
BEGIN, END = "<!-- real tools: made by ./dev real-tools -->\n", "<!-- end of real tools -->\n"
INSTALL_SECONDS = 900
RECORD_SECONDS = 900


class Failed(Exception):
    """A tool could not be installed, run or imported: why."""


@dataclasses.dataclass
class Outcome:
    """What came of one tool."""

    tool: Tool
    version: str = ""
    why: str = ""
    source: Talk = dataclasses.field(default_factory=Talk)
    here: Talk = dataclasses.field(default_factory=Talk)
    differences: list[str] = dataclasses.field(default_factory=list)


def main() -> int:
    """Run the job; 1 when something that was recorded did not come over."""
    parser = argparse.ArgumentParser(prog="./dev real-tools", description="Compare real records.")
    parser.add_argument("names", nargs="*", choices=[[], *(tool.program for tool in TOOLS)])
    parser.add_argument("--fixtures", action="store_true", help="renew the records of the tests")
    parser.add_argument("--scratch", type=Path, help="keep everything here, and use what is there")
    given = parser.parse_args()
    scratch = given.scratch or Path(tempfile.mkdtemp(prefix="real-tools-"))
    outcomes = []
    try:
        for tool in TOOLS:
            if given.names and tool.program not in given.names:
                continue
            outcomes.append(run(tool, scratch))
            say(summary_line(outcomes[-1]))
            if given.fixtures and not outcomes[-1].why:
                keep(tool, scratch / "records" / tool.program)
    finally:
        if given.scratch is None:
            shutil.rmtree(scratch, ignore_errors=True)
    say("\n" + table(outcomes))
    if not given.names:
        write(table(outcomes))
    return 1 if any(each.why or each.differences for each in outcomes) else 0


def run(tool: Tool, scratch: Path) -> Outcome:
    """Install, record, import and compare one tool."""
    outcome = Outcome(tool)
    try:
        say(f"{tool.name}: installing {tool.package}")
        install(tool, scratch)
        outcome.version = version(tool, scratch)
        say(f"{tool.name} {outcome.version}: running")
        outcome.source = record(tool, scratch)
        outcome.here = imported(taken(tool, scratch))
        outcome.differences = differences(outcome.source, outcome.here, has_tokens=tool.has_tokens)
    except Failed as error:
        outcome.why = str(error)
    return outcome


def install(tool: Tool, scratch: Path) -> None:
    """Install a tool, unless that was done before."""
    folder = scratch / "installed" / tool.program
    if (scratch / "installed" / program_in(tool)).exists():
        return
    folder.mkdir(parents=True)
    if tool.registry == "npm":
        environment = os.environ | {"npm_config_cache": str(scratch / "npm-cache")}
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, tool.package]
        _check(command, f"npm could not install {tool.package}", environment)
    else:
        _check([sys.executable, "-m", "venv", folder], "no environment could be made")
        command = [folder / "bin" / "pip", "install", "--quiet", tool.package]
        _check(command, f"pip could not install {tool.package}")


def version(tool: Tool, scratch: Path) -> str:
    """The version that was installed."""
    folder = scratch / "installed" / tool.program
    if tool.registry == "npm":
        package = folder / "node_modules" / tool.package / "package.json"
        return str(json.loads(package.read_text())["version"])
    shown = subprocess.run(
        [folder / "bin" / "pip", "list", "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    found = {each["name"]: each["version"] for each in json.loads(shown.stdout)}
    return str(found[tool.package])


def record(tool: Tool, scratch: Path) -> Talk:
    """Run a tool in a network of its own, and return what it recorded."""
    recording = [sys.executable, "-m", "tests.real_tools.recorder", tool.program, scratch]
    # Some tools leave a process behind: all of them end with the first process of their own numbering.
    apart = [
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    command = ["unshare", *apart, *recording]
    _check(command, "no network of its own could be made for it", seconds=RECORD_SECONDS)
    recorded = json.loads((scratch / "records" / tool.program / "talk.json").read_text())
    if "failed" in recorded:
        raise Failed(recorded["failed"])
    return Talk(**recorded)


def taken(tool: Tool, scratch: Path) -> Iterator[str]:
    """Import what a tool recorded, as a person would, and export it."""
    folder = scratch / "records" / tool.program
    shutil.rmtree(folder / "store", ignore_errors=True)
    sessionary = [sys.executable, "-m", "sessionary"]
    place = folder / "home" / tool.record
    command = [*sessionary, "import", tool.importer, place, "--home", folder / "store"]
    _check(command, "it could not be imported")
    exported = subprocess.run(
        [*sessionary, "export", "--all", "--home", folder / "store"],
        check=True,
        capture_output=True,
        text=True,
    )
    return iter(exported.stdout.splitlines())


def _check(
    command: Sequence[object],
    what: str,
    environment: dict[str, str] | None = None,
    seconds: float = INSTALL_SECONDS,
) -> None:
    try:
        done = subprocess.run(
            [str(each) for each in command],
            check=False,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{what} ({error})") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Failed(f"{what} ({' '.join(last)[:200]})")


def summary_line(outcome: Outcome) -> str:
    """The outcome of one tool, for the person who waits."""
    name = f"{outcome.tool.name} {outcome.version}".strip()
    if outcome.why:
        return f"{name}: {outcome.why}"
    if outcome.differences:
        return f"{name}: " + "; ".join(outcome.differences)
    return f"{name}: all of it is here"


def table(outcomes: list[Outcome]) -> str:
    """The table of the docs."""
    head = ("tool", "version", "prompts", "answers", "tool calls", "results", "tokens")
    rows = [f"| {' | '.join(head)} | |", "|---" * 8 + "|"]
    for each in outcomes:
        name, remark = each.tool.name, each.tool.remark
        if each.why:
            rows.append(f"| {name} | {each.version} | | | | | | not run: {each.why} |")
            continue
        source, here = each.source, each.here
        pairs = [
            (len(source.prompts), len(here.prompts)),
            (source.answers, here.answers),
            (len(source.calls), len(here.calls)),
            (source.results, here.results),
            (source.tokens if each.tool.has_tokens else "", here.tokens),
        ]
        cells = [f"{before} / {after}" for before, after in pairs]
        rows.append(f"| {name} | {each.version} | {' | '.join(cells)} | {remark} |")
    if len(outcomes) == len(TOOLS):
        rows += [f"| {name} | | | | | | | not run: {why} |" for name, why in NOT_RUN.items()]
    return "\n".join(rows) + "\n"


def write(text: str) -> None:
    """Put the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def say(text: str) -> None:
    """Tell the person who waits."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

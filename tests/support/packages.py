"""Installed packages that register plug-ins, without installing anything."""

from pathlib import Path


class Packages:
    """A directory of packages with one module each, to put on `sys.path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, package: str, module: str, *, group: str, name: str, version: str = "1.0"
    ) -> None:
        """Install a package; its module registers its `PLUGIN` under a name."""
        stem = package.replace("-", "_")
        info = self.folder / f"{stem}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {stem}_module:PLUGIN\n")
        (self.folder / f"{stem}_module.py").write_text(module)

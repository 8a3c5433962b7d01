"""What the configuration says of other tools' records."""

from dataclasses import dataclass

from sessionary.config import FILE, Config
from sessionary.config.table import Table


@dataclass(frozen=True, slots=True)
class ImportTable:
    """The table `[imports]`."""

    # The tools whose records `sessionary serve` reads as they grow.
    watch: tuple[str, ...] = ()


def read(config: Config) -> ImportTable:
    """Read the table that concerns imports."""
    table = Table(config.file, str(config.home / FILE)).table("imports")
    settings = ImportTable(watch=table.texts("watch", ()))
    table.refuse_unknown()
    return settings

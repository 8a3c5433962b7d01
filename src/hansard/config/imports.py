"""What the configuration says of other tools' records."""

from dataclasses import dataclass

from hansard.config import FILE, Config
from hansard.config.table import Table


@dataclass(frozen=True, slots=True)
class ImportTable:
    """The table `[imports]`."""

    # The tools whose records `hansard serve` reads as they grow.
    watch: tuple[str, ...] = ()


def read(config: Config) -> ImportTable:
    """Read the table that concerns imports."""
    table = Table(config.file, str(config.home / FILE)).table("imports")
    settings = ImportTable(watch=table.texts("watch", ()))
    table.refuse_unknown()
    return settings

"""Plug-ins: objects that installed packages register under one of our entry point groups.

    [project.entry-points."sessionary.channels"]
    acme = "acme_chat:CHANNEL"

Our own channels, agent kinds and importers are registered in the same way. Reading the metadata of the installed
packages takes about 35 ms, so a group reads it when the first of its plug-ins is needed, and only once. The help of the
command line lists plug-ins too, so this module loads little.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import Struct

from sessionary.errors import BadInput, Committed, PluginFailed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Named(Protocol):
    """What a plug-in registers: an object that has the name of its entry point."""

    @property
    def name(self) -> str | None: ...


T = TypeVar("T", bound=Named)
OUR_PACKAGE = "sessionary"


class Plugin(Struct, frozen=True):
    """A name that a package registers, and where the object is."""

    name: str
    package: str
    version: str
    entry_point: "EntryPoint"

    @property
    def is_ours(self) -> bool:
        """Whether it comes with Sessionary."""
        return self.package == OUR_PACKAGE

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


class PluginGroup(Generic[T]):
    """The plug-ins of one entry point group; each is an object of type `kind`, loaded on first use."""

    def __init__(
        self, group: str, noun: str, kind: type[T], *, reserved: Collection[str] = ()
    ) -> None:
        """`noun` is what one of them is called in messages; no plug-in can have a `reserved` name."""
        self.group = group
        self.noun = noun
        self._kind = kind
        self.reserved = frozenset(reserved)
        self._loaded: dict[str, T] = {}

    @cached_property
    def installed(self) -> Sequence[Plugin]:
        """Everything that is registered, sorted by name; ours come first."""
        # Importing it takes most of the time, which commands that need no plug-in save.
        from importlib.metadata import entry_points

        found = (
            Plugin(
                each.name,
                each.dist.name if each.dist else "an unknown package",
                each.dist.version if each.dist else "",
                each,
            )
            for each in entry_points(group=self.group)
        )
        return sorted(found, key=lambda each: (not each.is_ours, each.name, each.package))

    @property
    def names(self) -> list[str]:
        """The names that are registered and not reserved; ours come first."""
        names = dict.fromkeys(each.name for each in self.installed)
        return [name for name in names if name not in self.reserved]

    def load(self, name: str, *, where: str = "") -> T:
        """Return the object of this name; raise `BadInput` if there is none, `PluginFailed` if it cannot be used."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self.require(name, where=where))
        return self._loaded[name]

    def load_all(self) -> dict[str, T]:
        """Return everything that can be loaded, by name; what cannot is named in the log."""
        import logging  # the help of the command line does without it

        loaded: dict[str, T] = {}
        for name in self.names:
            try:
                loaded[name] = self.load(name)
            except PluginFailed as error:
                logging.getLogger(__name__).warning("%s", error)
        return loaded

    def require(self, name: str, *, where: str = "") -> list[Plugin]:
        """Return what is registered under this name, without loading it; raise `BadInput` if nothing is.

        `where` is the place in the settings that asks for it.
        """
        found = [each for each in self.installed if each.name == name]
        if not found:
            import difflib  # only a misspelt name needs it

            near = difflib.get_close_matches(name, self.names, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            known = ", ".join(self.names) or "none"
            if not self.installed:
                hint = (
                    "Sessionary was updated without its metadata: install it again (./dev setup). "
                )
            begin = f"{where}: there" if where else "There"
            raise BadInput(f"{begin} is no {self.noun} {name!r}. {hint}Installed: {known}.")
        return found

    def _load(self, name: str, found: list[Plugin]) -> T:
        if name in self.reserved:
            raise PluginFailed(
                f"The {self.noun} {name!r} of {found[0]} cannot be used: Sessionary has its own {self.noun} "
                "of that name. Uninstall the package."
            )
        if len(found) > 1:
            packages = " and ".join(map(str, found))
            raise PluginFailed(
                f"The {self.noun} {name!r} is registered by {packages}; uninstall all but one."
            )
        (plugin,) = found
        try:
            made = plugin.entry_point.load()
        except Exception as error:  # a module may raise anything when it is imported
            raise self.failed(name, error) from error
        if not isinstance(made, self._kind) or made.name != name:
            what = f"a {type(made).__name__}"
            what = f"{what} named {made.name!r}" if isinstance(made, self._kind) else what
            raise PluginFailed(
                f"The {self.noun} {name!r} of {plugin} cannot be used: {plugin.entry_point.value} "
                f"is {what}; expected: {self._kind.__name__} of that name."
            )
        return made

    def failed(
        self,
        name: str,
        error: Exception,
        *,
        what: str = "cannot be loaded",
        advice: str = "Update or uninstall the package.",
        committed: Committed = "no",
    ) -> PluginFailed:
        """Return the error for a plug-in that raised this one; `what` says what it did, `advice` what to do."""
        package = next((str(each) for each in self.installed if each.name == name), "")
        first = (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")
        return PluginFailed(
            f"The {self.noun} {name!r} of {package} {what}: "
            f"{type(error).__name__}: {first}. {advice}",
            committed=committed,
        )

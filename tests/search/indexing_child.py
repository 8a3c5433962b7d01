"""A process that searches and indexes until it is killed; it says so after each search."""

import sys

from tests.search.conftest import Library
from tests.store.conftest import opened
from tests.support.world import World


def main(url: str, name: str) -> None:
    library = Library(opened(url), name=name)
    world: World = library
    session = world.session(f"child {name} begins")
    number = 0
    while True:
        for _ in range(20):
            number += 1
            world.append_text(session, f"child {name} says word{number} and more")
        library.store.rebuild_index().result() if number % 100 == 0 else None
        library.find("says")
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

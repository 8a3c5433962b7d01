"""Files that programs keep by an id."""

from datetime import timedelta

import pytest

from sessionary.actions import files
from sessionary.actions.files import NewFile
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.message import Attachment, Message, Role, Text
from sessionary.store.tables import blobs
from sessionary.store.tables import files as kept_files
from sessionary.store.tables.files import StoredFile
from tests.support.suite import Suite, refused
from tests.support.world import World

HOUR = timedelta(hours=1)


def kept(world: World, data: bytes = b"a report", profile: str = "main", **more: object) -> str:
    """The id of a file that a program of a profile has sent."""
    new = NewFile(data, "report.txt", "text/plain", "user_data", **more)  # type: ignore[arg-type]
    made: StoredFile = world.write(
        files.keep_file, new, profile=profile, token_id="token", moment=world.moment()
    )
    return made.id


def read(world: World, id: str, profile: str = "main") -> bytes:
    """The bytes of a file."""
    found: tuple[StoredFile, bytes] = world.read(
        files.read_file, id, profile=profile, now=world.clock.now()
    )
    return found[1]


def delete(world: World, id: str, profile: str = "main") -> None:
    """Delete a file."""
    world.write(files.delete_file, id, profile=profile, now=world.clock.now())


class FileSuite(Suite):
    """A program keeps a file, and finds it by its id until it is deleted or expires."""

    def test_a_kept_file_outlives_the_week_of_an_upload(self, world: World) -> None:
        id = kept(world)
        world.clock.tick(days=30)

        world.write(files.delete_old_uploads, moment=world.moment())

        assert read(world, id) == b"a report"

    def test_a_file_is_kept_for_as_long_as_it_was_asked_for(self, world: World) -> None:
        id = kept(world, kept_for=HOUR)
        world.clock.tick(hours=1)

        with refused(NotFound, id):
            read(world, id)
        world.write(files.delete_old_uploads, moment=world.moment())

        assert not world.read(blobs.exists, blobs.hash_of(b"a report"))

    def test_another_profile_does_not_find_a_file_nor_deletes_or_attaches_it(
        self, world: World
    ) -> None:
        id = kept(world)

        with refused(NotFound, id):
            read(world, id, profile="other")
        with refused(NotFound, id):
            delete(world, id, profile="other")
        with refused(BadInput, "not in the store"):
            attached = Message(Role.USER, (Attachment(blobs.hash_of(b"a report")),))
            world.read(files.check_attachments, attached, profile="other")
        assert read(world, id) == b"a report"

    def test_a_deleted_file_stays_in_the_messages_that_have_it(self, world: World) -> None:
        id, name = kept(world), blobs.hash_of(b"a report")
        session = world.session("look at this")
        world.append(session, Message(Role.USER, (Text("here"), Attachment(name))))

        delete(world, id)

        assert world.read(blobs.get, name) == b"a report"
        world.purge(session)
        assert not world.read(blobs.exists, name)

    def test_a_purged_session_leaves_a_file_to_whoever_keeps_it(self, world: World) -> None:
        id = kept(world)
        session = world.session("look at this")
        world.append(session, Message(Role.USER, (Attachment(blobs.hash_of(b"a report")),)))

        world.purge(session)

        assert read(world, id) == b"a report"

    def test_two_files_with_the_same_bytes_are_deleted_one_by_one(self, world: World) -> None:
        one, two = kept(world), kept(world)

        delete(world, one)

        assert read(world, two) == b"a report"
        delete(world, two)
        assert not world.read(blobs.exists, blobs.hash_of(b"a report"))

    @pytest.mark.parametrize("newest_first", [True, False])
    def test_pages_have_each_file_once(self, world: World, newest_first: bool) -> None:
        made = [kept(world, bytes([n])) for n in range(5)]
        kept(world, b"not ours", profile="other")
        now, found, last = world.clock.now(), list[str](), None

        while page := world.read(
            kept_files.page,
            profile="main",
            now=now,
            limit=2,
            after=last,
            newest_first=newest_first,
        ):
            last = page[-1]
            found += [each.id for each in page]

        assert sorted(found) == sorted(made)
        assert found == sorted(found, reverse=newest_first)

    def test_an_empty_file_and_too_many_are_refused(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "MOST_FILES", 1)
        with refused(BadInput, "empty", unchanged=world):
            kept(world, b"")
        kept(world)
        with refused(Conflict, "Delete some first", unchanged=world):
            kept(world, b"one more")

"""On PostgreSQL changes get their numbers before they are committed: none that commits late is forgotten."""

import psycopg

from tests.search.conftest import Library, opened


def test_a_change_that_commits_after_others_with_larger_numbers_is_indexed(
    migrated_url: str,
) -> None:
    store = opened(migrated_url)
    library = Library(store)
    library.session("hello")
    store.catch_up().result()
    library.session("a second one")
    with psycopg.connect(migrated_url) as early, psycopg.connect(migrated_url) as late:
        # Two transactions run; the second has a change, and the first ends before it.
        early.execute("SELECT pg_current_xact_id()")
        row = late.execute(
            "INSERT INTO feed (session_no, seq, what) SELECT no, 1, 'entry' FROM sessions"
            " RETURNING position"
        ).fetchone()
        assert row is not None
        store.catch_up().result()
        early.commit()
        for words in ("a third", "a fourth"):
            library.session(words)
            store.catch_up().result()
        late.commit()

        store.catch_up().result()

        found = late.execute("SELECT 1 FROM search_docs WHERE no / 4 = %s", row).fetchone()
    store.close()
    assert found is not None

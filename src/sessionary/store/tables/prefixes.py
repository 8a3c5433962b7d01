"""The table of conversations that are recognised by their beginning."""

from collections.abc import Sequence

from sessionary.model import codec
from sessionary.store.database import Tx


def put(tx: Tx, digest: str, session_no: int, seq: int, *, profile: str, client: str) -> None:
    """Write where a beginning ends; an earlier conversation with the same one is replaced."""
    tx.run(
        "put_prefix",
        profile=profile,
        client=client,
        digest=digest,
        session_no=session_no,
        seq=seq,
    )


def find(
    tx: Tx, digests: Sequence[str], *, profile: str, client: str
) -> dict[str, tuple[int, int]]:
    """The number of the session and of its entry at which each beginning ends, if it is known."""
    rows = tx.all("find_prefixes", profile=profile, client=client, names=codec.encode(digests))
    return {digest: (session_no, seq) for digest, session_no, seq in rows}


def delete_of_session(tx: Tx, session_no: int) -> None:
    """Delete the beginnings that lead to a session."""
    tx.run("delete_prefixes", session_no=session_no)

"""The tables of tokens, logins, login links and passwords. They hold hashes, never secrets."""

from datetime import datetime

from sessionary.clock import from_micros, to_micros
from sessionary.model.access import Login, Scope, Token
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import moment


def insert_token(tx: Tx, token: Token, *, hashed: str) -> None:
    """Write a new token's row."""
    tx.run(
        "insert_token",
        id=token.id,
        profile=token.profile,
        name=token.name,
        hash=hashed,
        scope=token.scope,
        at=to_micros(token.created_at),
    )


def find_token(tx: Tx, hashed: str) -> tuple[Token, str] | None:
    """The token with this hash that was not revoked, and its stored hash."""
    row = tx.one("get_token_by_hash", hash=hashed)
    return None if row is None else (_token(row[:-1]), row[-1])


def get_token(tx: Tx, id: str, *, profile: str) -> Token | None:
    """A token by its id, revoked or not."""
    row = tx.one("get_token", id=id, profile=profile)
    return None if row is None else _token(row)


def is_valid_token(tx: Tx, id: str) -> bool:
    """Whether a token exists and was not revoked."""
    return tx.one("token_is_good", id=id) is not None


def list_tokens(tx: Tx, *, profile: str) -> list[Token]:
    """The tokens of a profile, revoked ones too."""
    return [_token(row) for row in tx.all("list_tokens", profile=profile)]


def revoke_token(tx: Tx, id: str, *, profile: str, at: datetime) -> None:
    """Mark a token as revoked."""
    tx.run("revoke_token", id=id, profile=profile, at=to_micros(at))


def insert_login(tx: Tx, login: Login, *, hashed: str) -> None:
    """Write a new login's row."""
    tx.run(
        "insert_login",
        id=login.id,
        profile=login.profile,
        hash=hashed,
        at=to_micros(login.began_at),
        expires_at=to_micros(login.expires_at),
    )


def find_login(tx: Tx, hashed: str, *, now: datetime) -> tuple[Login, str] | None:
    """The valid login with this hash, and its stored hash."""
    row = tx.one("get_login_by_hash", hash=hashed, now=to_micros(now))
    return None if row is None else (_login(row), row[-1])


def is_valid_login(tx: Tx, id: str, *, now: datetime) -> bool:
    """Whether a login has neither ended nor expired."""
    return tx.one("login_is_good", id=id, now=to_micros(now)) is not None


def list_logins(tx: Tx, *, profile: str, now: datetime) -> list[Login]:
    """The valid logins of a profile."""
    return [_login(row) for row in tx.all("list_logins", profile=profile, now=to_micros(now))]


def end_login(tx: Tx, id: str, *, profile: str, at: datetime) -> bool:
    """Mark a login as ended; say whether it had not been."""
    return bool(tx.run("end_login", id=id, profile=profile, at=to_micros(at)))


def end_other_logins(tx: Tx, but: str, *, profile: str, at: datetime) -> None:
    """Mark every login of a profile as ended but one."""
    tx.run("end_other_logins", profile=profile, at=to_micros(at), but=but)


def delete_old_logins(tx: Tx, *, now: datetime) -> None:
    """Delete the logins that have expired."""
    tx.run("delete_old_logins", before=to_micros(now))


def insert_login_link(tx: Tx, hashed: str, *, profile: str, expires_at: datetime) -> None:
    """Write a login link's row."""
    tx.run("insert_login_link", hash=hashed, profile=profile, expires_at=to_micros(expires_at))


def has_login_link(tx: Tx, hashed: str, *, now: datetime) -> bool:
    """Whether a login link is there and valid."""
    return tx.one("find_login_link", hash=hashed, now=to_micros(now)) is not None


def take_login_link(tx: Tx, hashed: str, *, now: datetime) -> str | None:
    """Delete a valid login link; return its profile."""
    row = tx.one("take_login_link", hash=hashed, now=to_micros(now))
    return None if row is None else str(row[0])


def delete_old_login_links(tx: Tx, *, now: datetime) -> None:
    """Delete the login links that have expired."""
    tx.run("delete_old_login_links", now=to_micros(now))


def get_password(tx: Tx, *, profile: str) -> str | None:
    """The hash of a profile's password, or None when it has none."""
    row = tx.one("get_password", profile=profile)
    return None if row is None else str(row[0])


def set_password(tx: Tx, hashed: str | None, *, profile: str, at: datetime) -> None:
    """Write the hash of a profile's password; None deletes it."""
    if hashed is None:
        tx.run("delete_password", profile=profile)
    else:
        tx.run("set_password", profile=profile, hash=hashed, at=to_micros(at))


def _token(row: Row) -> Token:
    id, profile, name, scope, created_at, revoked_at = row
    return Token(id, profile, name, Scope(scope), from_micros(created_at), moment(revoked_at))


def _login(row: Row) -> Login:
    id, profile, began_at, expires_at, *_ = row
    return Login(id, profile, from_micros(began_at), from_micros(expires_at))

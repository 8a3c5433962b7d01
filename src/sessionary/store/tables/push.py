"""The table of browsers that are notified of questions."""

from datetime import datetime

from sessionary.clock import from_micros, to_micros
from sessionary.model.push import NewSubscription, PushSubscription
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column, moment


def put(
    tx: Tx, id: str, new: NewSubscription, *, profile: str, login_id: str, at: datetime
) -> PushSubscription:
    """Write a subscription; one with the same endpoint is replaced, and keeps its id in the same profile."""
    row = tx.one(
        "put_push_subscription",
        id=id,
        profile=profile,
        endpoint=column(new.endpoint),
        p256dh=new.p256dh,
        auth=new.auth,
        label=column(new.label),
        language=column(new.language),
        origin=column(new.origin),
        login_id=login_id,
        at=to_micros(at),
    )
    assert row is not None
    return _subscription(row)


def get(tx: Tx, id: str, *, profile: str) -> PushSubscription | None:
    """A subscription of this profile."""
    row = tx.one("get_push_subscription", id=column(id), profile=profile)
    return None if row is None else _subscription(row)


def of_profile(tx: Tx, profile: str) -> list[PushSubscription]:
    """The subscriptions of a profile, oldest first."""
    return [_subscription(row) for row in tx.all("list_push_subscriptions", profile=profile)]


def ids(tx: Tx, profile: str) -> list[str]:
    """The ids of a profile's subscriptions, without those of revoked tokens."""
    return [id for (id,) in tx.all("push_subscription_ids", profile=profile)]


def note_success(tx: Tx, id: str, *, at: datetime) -> None:
    """Note that the push service has accepted a notification."""
    tx.run("push_succeeded", id=id, at=to_micros(at))


def note_failure(tx: Tx, id: str, *, problem: str) -> None:
    """Note that the push service has not accepted a notification, and why."""
    tx.run("push_failed", id=id, problem=column(problem))


def delete(tx: Tx, id: str, *, profile: str) -> bool:
    """Delete a subscription; say whether there was one."""
    return bool(tx.run("delete_push_subscription", id=column(id), profile=profile))


def delete_of_login(tx: Tx, login_id: str, *, profile: str) -> None:
    """Delete what a login has subscribed."""
    tx.run("delete_push_of_login", profile=profile, login_id=login_id)


def delete_of_other_logins(tx: Tx, but: str, *, profile: str) -> None:
    """Delete what all logins of a profile but one have subscribed."""
    tx.run("delete_push_of_other_logins", profile=profile, but=but)


def _subscription(row: Row) -> PushSubscription:
    id, profile, endpoint, p256dh, auth, label, language, origin, *rest = row
    created_at, succeeded_at, failures, problem = rest
    return PushSubscription(
        id=id,
        profile=profile,
        endpoint=endpoint,
        p256dh=p256dh,
        auth=auth,
        label=label,
        language=language,
        origin=origin,
        created_at=from_micros(created_at),
        succeeded_at=moment(succeeded_at),
        failures=failures,
        problem=problem,
    )

"""Notifications of browsers: who is subscribed, and which deliveries tell them of questions."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from sessionary.actions import outbox
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotFound, Unreachable
from sessionary.model.message import Text
from sessionary.model.push import (
    PLATFORM,
    NewSubscription,
    Notice,
    PushSubscription,
    notice_of,
    question_data,
    summary,
)
from sessionary.model.question import Question, edit_of
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.store.database import Tx
from sessionary.store.tables import deliveries, meta, push, questions

# Each of them costs a request for every question.
MOST_SUBSCRIPTIONS = 50
# How long a push service keeps what became of a question for a browser that is switched off.
OUTCOME_LIFE = timedelta(days=1)
TEST_LIFE = timedelta(minutes=1)
note_success = push.note_success
note_failure = push.note_failure
forget = push.delete
list_subscriptions = push.of_profile


class PushRequest(Struct, frozen=True):
    """A notification to send: to which browser, what it says, and until when that is of use.

    A newer one on the same `topic` replaces it; None for one that nothing replaces.
    """

    subscription: PushSubscription
    data: Mapping[str, Any]
    expires_at: datetime
    topic: str | None = None
    is_urgent: bool = True


def subscribe(
    tx: Tx,
    new: NewSubscription,
    *,
    profile: str,
    moment: Moment,
    login_id: str,
) -> PushSubscription:
    """Notify a browser of the questions of a profile, until its login is ended or a program's token is revoked.

    If it is known, its data is replaced.
    """
    known = push.of_profile(tx, profile)
    if len(known) >= MOST_SUBSCRIPTIONS and all(each.endpoint != new.endpoint for each in known):
        raise Conflict(
            f"{MOST_SUBSCRIPTIONS} browsers are subscribed already; remove one first. Nothing was changed."
        )
    return push.put(tx, moment.new_id(), new, profile=profile, login_id=login_id, at=moment.now)


def remove(tx: Tx, id: str, *, profile: str) -> None:
    """Notify a browser no more; what waits for it is abandoned when its turn comes."""
    if not push.delete(tx, id, profile=profile):
        raise NotFound(f"There is no subscribed browser {id}.")


def notify(tx: Tx, question: Question, *, moment: Moment, is_reminder: bool = False) -> None:
    """Tell the subscribed browsers of a question that is open."""
    for id in push.ids(tx, question.profile):
        channel = Channel(PLATFORM, id)
        delivery_id = outbox.enqueue(
            tx,
            channel,
            (Text(summary(question)), Notice(question.id, is_reminder).part()),
            profile=question.profile,
            moment=moment,
            session_no=question.session_no,
        )
        questions.insert_card(tx, question.no, delivery_id=delivery_id, channel=str(channel))


def send_test(tx: Tx, id: str, *, profile: str, moment: Moment) -> str:
    """Send a browser a notification that only says that it works; return the id of the delivery."""
    if push.get(tx, id, profile=profile) is None:
        raise NotFound(f"There is no subscribed browser {id}.")
    parts = (Text("A test of the notifications."), Notice(None).part())
    return outbox.enqueue(tx, Channel(PLATFORM, id), parts, profile=profile, moment=moment)


def read_request(tx: Tx, delivery: Delivery, *, now: datetime) -> PushRequest:
    """Return what a delivery to a browser says now; raise `Unreachable` if that is of no use any more."""
    edit = edit_of(delivery.parts)
    asked = delivery
    if edit is not None:
        found = deliveries.get(tx, edit.delivery_id, profile=delivery.profile)
        if found is None or found.state is not DeliveryState.SENT:
            raise Unreachable("The question was not shown there.", str(delivery.channel))
        asked = found
    notice = notice_of(asked.parts)
    if notice is None:
        raise Unreachable("Browsers are notified of questions only.", str(delivery.channel))
    subscription = push.get(tx, delivery.channel.chat_id, profile=delivery.profile)
    if subscription is None:
        raise Unreachable("This browser is not subscribed any more.", str(delivery.channel))
    if notice.question_id is None:
        life = delivery.created_at + TEST_LIFE
        return PushRequest(subscription, {"test": True}, _in_time(life, delivery, now))
    question = questions.get(tx, notice.question_id, profile=delivery.profile)
    if question is None:
        raise Unreachable("The question was deleted.", str(delivery.channel))
    if edit is None and not question.is_open:
        raise Unreachable("The question was decided before.", str(delivery.channel))
    data = question_data(question, is_reminder=notice.is_reminder and question.is_open)
    expires_at = question.expires_at if question.is_open else delivery.created_at + OUTCOME_LIFE
    return PushRequest(
        subscription,
        data,
        _in_time(expires_at, delivery, now),
        topic=question.id,
        is_urgent=question.is_open,
    )


def _in_time(expires_at: datetime, delivery: Delivery, now: datetime) -> datetime:
    if now >= expires_at:
        raise Unreachable("It is too late to show this.", str(delivery.channel))
    return expires_at


# By this key the push services know that a notification comes from the server at which the browser subscribed.
_KEY = meta.PUSH_KEY


def get_key(tx: Tx) -> str | None:
    """Return the private key of the store, if it has been made."""
    return meta.get(tx, _KEY)


def keep_key(tx: Tx, new: str) -> str:
    """Keep a private key unless there is one; return the one that counts."""
    return meta.put_once(tx, _KEY, new)

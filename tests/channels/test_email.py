"""Mails taken apart and put together; no server."""

from email.message import EmailMessage
from typing import Any

import pytest

from sessionary.channels import registry
from sessionary.channels.email import inbound, outbound
from sessionary.channels.email.inbound import IgnoredMail, Mail, MailRules
from sessionary.channels.email.mail_text import own_words, text_of_html
from sessionary.channels.email.outbound import MailSender, MailThread, wait_in
from sessionary.errors import BadInput, Unreachable
from sessionary.model.message import Attachment, Text
from sessionary.model.source import Channel
from sessionary.testing.channel_world import delivery_to

RULES = MailRules("bot@example.org")
ME = MailSender("bot@example.org", "Bot")
SETTINGS: dict[str, Any] = {
    "address": "bot@example.org",
    "password_env": "PASSWORD",
    "imap_host": "imap.example.org",
    "smtp_host": "smtp.example.org",
    "trust_from": True,
}


def a_mail(text: str = "hello", **headers: str) -> EmailMessage:
    mail = EmailMessage()
    given = {"From": "Ada <Ada@Example.org>", "To": "bot@example.org", "Subject": "Tea"}
    given |= {"Message-ID": "<1@example.org>"}
    for name, value in {
        **given,
        **{key.replace("_", "-"): it for key, it in headers.items()},
    }.items():
        mail[name] = value
    mail.set_content(text)
    return mail


def read(mail: EmailMessage, rules: MailRules = RULES) -> Mail:
    found = inbound.read(mail.as_bytes(), rules)
    assert isinstance(found, Mail), found
    return found


def ignored(mail: EmailMessage, rules: MailRules = RULES) -> str:
    found = inbound.read(mail.as_bytes(), rules)
    assert isinstance(found, IgnoredMail)
    return found.reason


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain; charset=idna",
        "text/plain; charset=undefined",
        "text/plain; charset=punycode",
        'text/plain; charset="utf-8\0"',
        "message/rfc822",
    ],
)
def test_anyone_may_send_anything_and_it_can_be_read(kind: str) -> None:
    raw = f"From: ada@example.org\r\nContent-Type: {kind}\r\n\r\nX: y\r\n\r\n".encode()

    mail = inbound.read(raw + b"h\xe9llo \xff\xfe", RULES)

    assert isinstance(mail, Mail)
    message, files = inbound.message_of(mail)
    assert "llo" in message.text or any(b"llo" in data for data in files)


def test_a_first_mail_is_the_root_of_its_thread() -> None:
    source = inbound.source_of(read(a_mail()))

    assert source.channel == Channel("email", "ada@example.org", "<1@example.org>")
    assert (source.user_id, source.user_name) == ("ada@example.org", "Ada")
    assert source.chat_topic == "Tea"
    assert source.platform_message_id == "<1@example.org>"


def test_an_answer_belongs_to_the_thread_of_the_first_mail() -> None:
    mail = read(a_mail(References="<root@x> <2@x>", In_Reply_To="<2@x>", Subject="AW: Re: Tea"))

    assert inbound.source_of(mail).thread_id == "<root@x>"
    assert inbound.source_of(mail).chat_topic == "Tea"


def test_a_mail_without_an_id_has_the_same_name_each_time() -> None:
    mail = a_mail()
    del mail["Message-ID"]

    assert read(mail).message_id == read(mail).message_id


def test_a_mail_without_a_body_has_its_subject_as_text() -> None:
    assert read(a_mail("", Subject="Buy milk")).words == "Buy milk"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Auto_Submitted": "auto-replied"}, "automatic"),
        ({"Precedence": "bulk"}, "list"),
        ({"List_Id": "<all.example.org>"}, "list"),
        ({"X_Autoreply": "yes"}, "automatic"),
        ({"From": "bot@example.org"}, "our own"),
        ({"X_Loop": "bot@example.org"}, "our own"),
        ({"From": "MAILER-DAEMON@example.org"}, "bounce"),
        ({"Return_Path": "<>"}, "bounce"),
        ({"From": "nobody"}, "no sender"),
    ],
)
def test_what_no_person_wrote_is_not_answered(headers: dict[str, str], why: str) -> None:
    assert why in ignored(a_mail(**headers))


def test_our_own_answer_that_comes_back_is_ignored() -> None:
    sent = outbound.compose(
        delivery_to(Channel("email", "ada@example.org", "<1@example.org>"), "hi"),
        "hi",
        ME,
        MailThread(),
    )
    sent.replace_header("From", "ada@example.org")

    assert "our own" in ignored(sent)


def test_a_sender_that_the_mail_server_did_not_authenticate_is_ignored() -> None:
    strict = MailRules("bot@example.org", authserv_id="mx.example.org")
    good = "mx.example.org; spf=pass; dmarc=pass header.from=example.org"

    assert "vouch" in ignored(a_mail(), strict)
    assert "vouch" in ignored(a_mail(Authentication_Results="mx.example.org; dmarc=fail"), strict)
    assert "vouch" in ignored(a_mail(Authentication_Results="evil.org; dmarc=pass"), strict)
    assert "vouch" in ignored(
        a_mail(Authentication_Results="mx.example.org; dkim=pass header.d=evil.org"), strict
    )
    assert read(a_mail(Authentication_Results=good), strict).words == "hello"
    signed = a_mail(Authentication_Results="mx.example.org; dkim=pass header.d=example.org")
    assert read(signed, strict).words == "hello"


def test_a_forged_authentication_result_below_the_servers_own_is_ignored() -> None:
    strict = MailRules("bot@example.org", authserv_id="mx.example.org")
    raw = b"Authentication-Results: mx.example.org; dmarc=fail\r\n"
    raw += b"Authentication-Results: mx.example.org; dmarc=pass\r\n" + a_mail().as_bytes()

    assert isinstance(inbound.read(raw, strict), IgnoredMail)


@pytest.mark.parametrize(
    "below",
    [
        "On Mon, 2 Nov 2026 at 10:00, Bot <bot@example.org> wrote:\n> old\n> words",
        "On Mon, 2 Nov 2026 at 10:00, Bot\n<bot@example.org> wrote:\n\n> old\n> words",
        "Am 02.11.26 um 10:00 schrieb Bot:\n> old words",
        "-----Original Message-----\nFrom: Bot\nold words",
        "________________________________\nFrom: Bot <b@x>\nSent: Monday\nTo: Ada\n\nold words",
        "-- \nAda\nold words",
        "> old words",
        "Sent from my telephone\n\nOn Monday Bot wrote:\n> old words",
    ],
)
def test_quoted_text_is_removed_from_a_mail(below: str) -> None:
    written = own_words(f"my words\n\n{below}\n")

    assert written.text == "my words"
    assert "words" in written.left_out


def test_an_answer_below_the_quote_is_kept() -> None:
    assert own_words("On Monday Bot wrote:\n> old\n> words\n\nmy words").text == "my words"


def test_a_quote_that_is_answered_line_by_line_stays() -> None:
    text = "On Monday Bot wrote:\n> one?\nyes\n> two?\nno"

    assert own_words(text).text == text


def test_a_mail_of_quotes_alone_stays_as_it_is() -> None:
    assert own_words("> all\n> quoted").text == "> all\n> quoted"


def test_the_removed_quote_is_kept_beside_the_text() -> None:
    message, _ = inbound.message_of(read(a_mail("mine\n\nOn Monday Bot wrote:\n> theirs")))

    assert message.text == "mine"
    assert "> theirs" in message.extra["email"]["left_out"]


def test_a_page_is_read_as_text() -> None:
    html = (
        "<html><head><style>p {}</style></head><body><p>Hello&nbsp;<b>you</b></p><ul><li>one</li>"
        "<li>two</li></ul><a href='https://x.org'>there</a><script>evil()</script>"
        "<blockquote>On it<br>goes</blockquote></body></html>"
    )

    text = text_of_html(html)

    assert text == "Hello\xa0you\n\n- one\n- two\nthere (https://x.org)\n> On it\n> goes"


def test_a_mail_of_html_alone_loses_its_quote() -> None:
    mail = a_mail()
    mail.set_content(
        "<div>mine</div><div>On Monday Bot wrote:<br><blockquote>theirs</blockquote></div>",
        subtype="html",
    )

    assert read(mail).words == "mine"


def test_files_are_taken_and_a_large_one_is_named() -> None:
    mail = a_mail("look")
    mail.add_attachment(b"small", maintype="image", subtype="png", filename="../../a.png")
    mail.add_attachment(b"x" * 2000, maintype="image", subtype="png", filename="b.png")

    message, files = inbound.message_of(read(mail, MailRules("bot@example.org", largest_file=1000)))

    words, small, large = message.parts
    assert words == Text("look")
    assert isinstance(small, Attachment)
    assert (small.name, small.media_type, small.size) == ("a.png", "image/png", 5)
    assert isinstance(large, Text)
    assert "too large" in large.text
    assert files == (b"small",)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe garbage",
        b"From: =?utf-8?b?!!!?= <a@x.org>\nSubject: =?nope?q?x?=\n\nhi",
        b"From: a@x.org\nContent-Type: text/plain; charset=nope\n\n\xff\x00",
        b"From: a@x.org\nContent-Type: multipart/mixed; boundary=b\n\nno boundary here",
        b"From: a@x.org\nContent-Transfer-Encoding: base64\n\n!!!!",
        b"From: a@x.org\nMessage-ID: <" + b"x" * 2000 + b"@x>\n\nhi",
    ],
)
def test_a_broken_mail_is_read_or_ignored_and_never_fails(raw: bytes) -> None:
    assert isinstance(inbound.read(raw, RULES), Mail | IgnoredMail)


def test_an_answer_is_a_reply_to_the_mail_it_answers() -> None:
    channel = Channel("email", "ada@example.org", "<root@x>")

    sent = outbound.compose(
        delivery_to(channel, "hi"), "hi", ME, MailThread("Re: Tea", ("<root@x>", "<2@x>"))
    )

    assert sent["To"] == "ada@example.org"
    assert sent["Subject"] == "Re: Tea"
    assert sent["In-Reply-To"] == "<2@x>"
    assert sent["References"] == "<root@x> <2@x>"
    assert sent["Auto-Submitted"] == "auto-replied"
    assert sent["Message-ID"] == "<delivery-1@example.org>"


def test_a_long_id_goes_back_as_it_came() -> None:
    root = f"<{'x' * 200}@example.org>"

    sent = outbound.compose(
        delivery_to(Channel("email", "a@x.org", root), "hi"), "hi", ME, MailThread()
    )

    assert f"References: {root}".encode() in sent.as_bytes()


def test_a_subject_cannot_smuggle_a_header_in() -> None:
    thread = MailThread("Tea\r\nBcc: all@example.org", ("<1@x>",))

    sent = outbound.compose(
        delivery_to(Channel("email", "a@x.org", "<1@x>"), "hi"), "hi", ME, thread
    )

    assert sent["Bcc"] is None


@pytest.mark.parametrize("address", ["nobody", "a b@c", "a@x.org, b@x.org", "@"])
def test_what_is_no_address_is_unreachable(address: str) -> None:
    with pytest.raises(Unreachable):
        outbound.compose(delivery_to(Channel("email", address), "hi"), "hi", ME, MailThread())


def test_a_server_that_asks_for_time_gets_it() -> None:
    assert wait_in("Greylisted, try again in 5 minutes") == 300
    assert wait_in("try again in 37 seconds") == 37
    assert wait_in("4.7.1 later") == 60


def test_the_configuration_must_name_the_authenticating_server() -> None:
    with pytest.raises(BadInput, match="authserv_id"):
        registry.build("email", {**SETTINGS, "trust_from": False}, {"PASSWORD": "x"})


def test_a_password_never_goes_out_in_the_clear() -> None:
    with pytest.raises(BadInput, match="in the clear"):
        registry.build("email", {**SETTINGS, "smtp_security": "none"}, {"PASSWORD": "x"})


def test_a_misspelt_setting_is_noticed() -> None:
    with pytest.raises(BadInput, match="folder"):
        registry.build("email", {**SETTINGS, "foldr": "INBOX"}, {"PASSWORD": "x"})

"""WhatsApp: a number of Meta's Cloud API, by its webhook."""

from collections.abc import Mapping

from sessionary.channels.enclosures import largest_sent
from sessionary.channels.files import MEGABYTE
from sessionary.channels.whatsapp.adapter import WhatsAppAdapter
from sessionary.channels.whatsapp.client import BASE_URL, VERSION, Graph
from sessionary.channels.whatsapp.inbound import DEFAULT_LARGEST_FILE, DEFAULT_LARGEST_SENT, Rules
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput


def build(table: Table, environ: Mapping[str, str]) -> WhatsAppAdapter:
    """The adapter that `[channels.whatsapp]` describes."""
    number_id = table.text("phone_number_id")
    if not number_id or not number_id.isdecimal():
        raise BadInput(
            "[channels.whatsapp]: phone_number_id must be the digits that the app's page "
            "«API Setup» shows under the number (not the number itself)."
        )
    graph = Graph(
        number_id,
        table.required_secret("token", environ),
        base_url=table.text("base_url", BASE_URL) or BASE_URL,
        version=table.text("api_version", VERSION) or VERSION,
    )
    most = table.number("largest_file_mb", DEFAULT_LARGEST_FILE / MEGABYTE)
    rules = Rules(
        always=table.word("answer", "mentioned", ("mentioned", "always")) == "always",
        observe=table.flag("observe", default=False),
        largest_file=round(most * MEGABYTE),
        largest_sent=largest_sent(table, DEFAULT_LARGEST_SENT),
    )
    app_secret = table.required_secret("app_secret", environ)
    verify_token = table.required_secret("verify_token", environ)
    return WhatsAppAdapter(graph, app_secret, verify_token, rules)


async def check(adapter: Adapter) -> str:
    """Present the token, and say who the bot is."""
    assert isinstance(adapter, WhatsAppAdapter)
    return f"WhatsApp knows this number as {await adapter.who()}."

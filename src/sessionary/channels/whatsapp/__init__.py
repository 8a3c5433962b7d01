"""WhatsApp: a number of Meta's Cloud API, by its webhook."""

from collections.abc import Mapping

from sessionary.channels.base import read_megabytes, read_options
from sessionary.channels.whatsapp.adapter import WhatsAppAdapter
from sessionary.channels.whatsapp.client import BASE_URL, VERSION, GraphClient
from sessionary.channels.whatsapp.inbound import WhatsAppOptions
from sessionary.config.table import Table
from sessionary.errors import BadInput


def build(table: Table, environ: Mapping[str, str]) -> WhatsAppAdapter:
    """Return the adapter that `[channels.whatsapp]` describes."""
    number_id = table.text("phone_number_id")
    if not number_id or not number_id.isdecimal():
        raise BadInput(
            "[channels.whatsapp]: phone_number_id must be the digits that the app's page "
            "«API Setup» shows under the number (not the number itself)."
        )
    graph = GraphClient(
        number_id,
        table.required_secret("token", environ),
        base_url=table.text("base_url", BASE_URL) or BASE_URL,
        version=table.text("api_version", VERSION) or VERSION,
    )
    default = WhatsAppOptions()
    largest_file = read_megabytes(table, "largest_file_mb", default.largest_file)
    options = read_options(table, default, largest_file=largest_file)
    app_secret = table.required_secret("app_secret", environ)
    verify_token = table.required_secret("verify_token", environ)
    return WhatsAppAdapter(graph, app_secret, verify_token, options)

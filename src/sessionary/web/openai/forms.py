"""Forms with files (`multipart/form-data`), read from a body that is whole and within its limits."""

from email.message import Message as Headers

from msgspec import Struct

from sessionary.errors import BadInput

FORM = "multipart/form-data"
# More than any client sends: a file, its purpose, and when it expires.
_MOST_FIELDS = 20
_LONGEST_HEAD = 8 * 1024
_LONGEST_BOUNDARY = 200


class FormField(Struct, frozen=True):
    """One field of a form; a file has a name."""

    name: str
    data: bytes
    file_name: str | None = None
    media_type: str = ""

    @property
    def text(self) -> str:
        """The value of a field that is no file."""
        return self.data.decode("utf-8", "replace")


def parse_form(body: bytes, content_type: str) -> dict[str, FormField]:
    """Read the fields of a form by their names; of several with one name, the first.

    Raises `BadInput` for anything that is no such form.
    """
    boundary = _boundary(content_type)
    # Each part begins on a line of its own; the first line of all may be a boundary.
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary, _MOST_FIELDS + 2)
    if len(pieces) < 3 or len(pieces) > _MOST_FIELDS + 2 or not pieces[-1].startswith(b"--"):
        raise BadInput(
            f"The form is cut off or has more than {_MOST_FIELDS} fields; nothing was kept."
        )
    found: dict[str, FormField] = {}
    for piece in pieces[1:-1]:
        field = _field(piece)
        found.setdefault(field.name, field)
    return found


def _boundary(content_type: str) -> bytes:
    headers = _headers(f"Content-Type: {content_type}")
    boundary = headers.get_boundary()
    if headers.get_content_type() != FORM or not boundary or len(boundary) > _LONGEST_BOUNDARY:
        raise BadInput(f"Send a form, with the content type {FORM} and its boundary.")
    return boundary.encode("latin-1", "replace")


def _field(piece: bytes) -> FormField:
    # What follows the boundary on its line is white space.
    _, newline, rest = piece.partition(b"\r\n")
    head, blank, data = rest.partition(b"\r\n\r\n")
    if not newline or not blank or len(head) > _LONGEST_HEAD:
        raise BadInput("A field of the form has no head; nothing was kept.")
    headers = _headers(head.decode("utf-8", "replace"))
    name = headers.get_param("name", header="content-disposition")
    if headers.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise BadInput("A field of the form has no name; nothing was kept.")
    file_name = headers.get_filename()
    if file_name is not None:
        file_name = file_name.replace("%22", chr(34))  # as browsers write it
    return FormField(name, data, file_name, headers.get("content-type", "").strip())


def _headers(text: str) -> Headers:
    headers = Headers()
    for line in text.split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip() or "x"] = value.strip().replace("\n", " ").replace("\r", " ")
    return headers

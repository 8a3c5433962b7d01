"""Many numbers as one parameter of a query."""

from collections.abc import Iterable


def pg_array_literal(numbers: Iterable[int]) -> str:
    """Numbers in the form in which both databases take them: see `among_numbers`."""
    return f"{{{','.join(map(str, numbers))}}}"

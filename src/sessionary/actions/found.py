"""What a search found, by the names that it has in JSON everywhere."""

from typing import Any

from sessionary.actions.hits import Hit
from sessionary.actions.search import Found
from sessionary.model.view import head_json, time_text


def found_json(found: Found) -> dict[str, Any]:
    """The answer to a search."""
    return {
        "items": [hit_json(hit) for hit in found],
        "next": found.next,
        "total": found.total,
        "more": found.more,
        "words": found.words,
        "relaxed": found.relaxed,
        "beginnings": found.beginnings,
        "step_hits": found.step_hits,
        "behind": found.behind,
        "suggestion": found.suggestion,
        "missing": found.missing,
    }


def hit_json(hit: Hit) -> dict[str, Any]:
    """One hit, with the head of its session."""
    return {
        "session": head_json(hit.session),
        "id": hit.id,
        "seq": hit.seq,
        "role": hit.role,
        "snippet": hit.snippet,
        "text": hit.text,
        "at": time_text(hit.at),
        "score": hit.score,
        "before": hit.before,
        "after": hit.after,
        "in_session": hit.in_session,
    }

"""The ends of error messages about unknown keys that are those of other programs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from typing import Any

from symphony.model.document.other_formats import values
from symphony.model.document.other_formats.known_keys import (
    EXPERIMENT_KEYS,
    PROCESS_KEYS,
    translate,
)
from symphony.model.document.other_formats.translation import (
    NOTHING,
    Note,
    Translation,
    Untranslatable,
)

# A longer translation would hide the rest of an error message.
_MAX_HINT_LENGTH = 160


def process_hint(key: str, value: Any, name: str, known: Collection[str]) -> str:
    """Return the end of the error message for an unknown key of a process or group.

    The result is empty if the key is not a foreign key, or if its translation contains keys that
    are not in ``known``.
    """
    if key not in PROCESS_KEYS:
        return ""
    example = PROCESS_KEYS[key].example
    try:
        translation = translate(key, value, name) or Translation()
    except Untranslatable:
        return f"; write for example {example}" if example else ""
    settings = translation.settings
    if not set(settings) <= set(known):
        return ""
    text = " and ".join(f"{name}: {flow_text(item)}" for name, item in settings.items())
    if settings and len(text) <= _MAX_HINT_LENGTH and text.isprintable():
        fixes = [note.fix for note in translation.notes if note.fix != NOTHING]
        return "; write " + ", and ".join([text, *fixes[:1]])
    if example:
        return f"; write for example {example}"
    return "".join(f"; {note.problem}: {_fix_of(note)}" for note in translation.notes[:1])


def experiment_hint(key: str) -> str:
    """Return the end of the error message for an unknown key at the top level, if it is known."""
    hint = EXPERIMENT_KEYS.get(key)
    return f"; {hint}" if hint else ""


def volume_hint(value: Any) -> str:
    """Return the end of the error message for a volume that is written as in a compose file."""
    try:
        volume = values.translate_volume(value)
    except (TypeError, ValueError, AttributeError, KeyError):
        return ""
    details = volume.get("host_path")
    if details is not None and not details["path"].startswith("/"):
        # A path on a node is absolute.
        details["path"] = f"/path/to/{posixpath.basename(details['path'])}"
    text = flow_text(volume)
    return f"; write {text}" if len(text) <= _MAX_HINT_LENGTH and text.isprintable() else ""


def _fix_of(note: Note) -> str:
    return "remove it" if note.fix == NOTHING else note.fix


# --- values as text ---

_PLAIN = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z./][-\w./]*(?::[-\w./]+)*", re.IGNORECASE
)


def flow_text(value: Any) -> str:
    """Return plain data as YAML on one line.

    >>> flow_text({"db": "ready", "list": [1, "2", "a: b"]})
    '{db: ready, list: [1, "2", "a: b"]}'
    """
    if isinstance(value, Mapping):
        items = [f"{flow_text(str(key))}: {flow_text(item)}" for key, item in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(flow_text, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)

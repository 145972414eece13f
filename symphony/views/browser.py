"""Whether a browser can be opened on the screen of the user."""

from __future__ import annotations

from collections.abc import Mapping


def has_display(environment: Mapping[str, str]) -> bool:
    """Return whether a browser can be opened on the user's screen."""
    if any(name in environment for name in ("SSH_CONNECTION", "SSH_TTY")):
        return False
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))

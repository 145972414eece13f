"""The supervisor's note: a message about the whole experiment, which readers show in its status.

The supervisor writes the note when something is wrong, for example when the disk is full. The note
has a fixed size and is overwritten in place, so that no disk space is needed to change it.
"""

from __future__ import annotations

import contextlib
import os

from symphony.supervised.record.directory import RunDirectory

NOTE_BYTES = 1024


class NoteWriter:
    """A writer for the note of one run. The note consists of one message for each topic.

    Raises OSError if the file cannot be created.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._messages: dict[str, str] = {}
        self._descriptor = os.open(run.note, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._write()

    def has(self, topic: str) -> bool:
        """Return whether the note contains a message for a topic."""
        return topic in self._messages

    def set(self, topic: str, message: str) -> None:
        """Replace the message for a topic. An empty message removes the topic.

        Errors are ignored, because they could only be reported in the note.
        """
        self._messages.pop(topic, None)
        if message:
            self._messages[topic] = " ".join(message.split())
        with contextlib.suppress(OSError):
            self._write()

    def _write(self) -> None:
        text = "; ".join(self._messages.values()).encode(errors="replace")
        os.pwrite(self._descriptor, text[:NOTE_BYTES].ljust(NOTE_BYTES), 0)


def read_note(run: RunDirectory) -> str:
    """Return the supervisor's note, or ``""`` if there is none."""
    try:
        content = run.note.read_bytes()
    except OSError:
        return ""
    return content.decode(errors="ignore").strip()

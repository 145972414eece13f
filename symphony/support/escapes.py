"""Making text safe for a terminal.

Names, paths, keys and logs can contain characters that control a terminal: they can move the
cursor, overwrite earlier output, change the title of the window, show a link with a misleading
text, or reorder characters. All functions are pure.
"""

from __future__ import annotations

import re

# The parameters of a colour can be separated by semicolons or colons. `ESC [ > 4 ; 2 m` and
# `ESC [ ? 4 m` also end with "m", but they are settings of the keyboard.
_REST_OF_COLOUR = r"\[[0-9;:]*m"
_COLOUR = rf"\x1b{_REST_OF_COLOUR}"

# U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to U+206F change the order in which characters
# are shown.
_BIDI_CONTROLS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
# Each match begins with one of these characters, which `re` finds fast because they are one set at
# the beginning of the pattern. The rest of a sequence depends on this character.
_FIRST_CHARACTER = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI_CONTROLS}]"
_REST_OF_SEQUENCE = (
    # Control sequences, such as colours and cursor movements.
    r"(?:(?:(?<=\x1b)\[|(?<=\x9b))[0-?]*[ -/]*[@-~]"
    # Strings, such as titles and hyperlinks. The text between the two parts of a hyperlink remains.
    r"|(?:(?<=\x1b)[]PX^_]|(?<=[\x90\x98\x9d-\x9f]))[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    # Other escape sequences. Incomplete ones, and control characters except tabs and newlines,
    # consist of the first character only.
    r"|(?<=\x1b)[ -/]*[0-~])?"
)
_CONTROL_SEQUENCES = re.compile(_FIRST_CHARACTER + _REST_OF_SEQUENCE)
_OTHER_THAN_COLOURS = re.compile(
    rf"{_FIRST_CHARACTER}(?!(?<=\x1b){_REST_OF_COLOUR}){_REST_OF_SEQUENCE}"
)
_CARRIAGE_RETURNS = re.compile(r"\r+\n?")
_COLOUR_OR_CHARACTER = re.compile(rf"{_COLOUR}|.", re.DOTALL)


def escape(text: str) -> str:
    r"""Return ``text`` with a visible notation in place of each character that is not printable.

    Newlines and tabs are kept.

    >>> print(escape("a\x1b[31m\u202eb"))
    a\x1b[31m\u202eb
    """
    if text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def escape_except_colours(text: str) -> str:
    """Return ``text`` with the same notation as in `escape`, but keep sequences that set a colour.

    Use this function for text to which the program itself has added colours.
    """
    if text.isprintable():
        return text
    return _COLOUR_OR_CHARACTER.sub(lambda found: _escape_character(found[0]), text)


def _escape_character(character: str) -> str:
    if character.isprintable() or character in "\n\t" or len(character) > 1:
        return character
    return character.encode("unicode_escape").decode("ascii")


def remove_controls(text: str, *, keep_colours: bool) -> str:
    r"""Return a log without its control sequences and control characters.

    Tabs and newlines are kept, and so are sequences that set a colour if ``keep_colours`` is true.
    A carriage return becomes a newline, so that no text hides the text before it.

    >>> remove_controls("\x1b]0;title\x07one\rtwo\r\n", keep_colours=True)
    'one\ntwo\n'
    """
    if text.isprintable():
        return text
    if "\r" in text:
        text = _CARRIAGE_RETURNS.sub("\n", text)
    removed = _OTHER_THAN_COLOURS if keep_colours else _CONTROL_SEQUENCES
    return removed.sub("", text)


def last_line(text: str, longest: int) -> str:
    r"""Return the last line that is not blank, without control characters.

    If it has more than ``longest`` characters, only its beginning is returned.

    >>> last_line("one\n\x1b[31mtwo\x1b[0m \n\n", 100)
    'two'
    """
    lines = remove_controls(text, keep_colours=False).replace("\t", " ").splitlines()
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return line if len(line) <= longest else f"{line[:longest]}..."


class LogCleaner:
    """A filter that applies `remove_controls` to a log that arrives in pieces.

    ``has_colours`` is true if the output so far contains a sequence that sets a colour.
    """

    # The part of a line that is kept until the rest of the line arrives.
    MAX_LINE_CHARACTERS = 1 << 20

    def __init__(self, *, keep_colours: bool) -> None:
        self.has_colours = False
        self._keep_colours = keep_colours
        self._incomplete_line = ""

    def clean(self, piece: str) -> str:
        """Return the cleaned text of all lines that are complete after ``piece``."""
        text = self._incomplete_line + piece
        end = text.rfind("\n") + 1
        if len(text) - end > self.MAX_LINE_CHARACTERS:
            end = len(text)
        self._incomplete_line = text[end:]
        return self._remove(text[:end])

    def clean_rest(self) -> str:
        """Return the cleaned text of the incomplete last line."""
        rest, self._incomplete_line = self._incomplete_line, ""
        return self._remove(rest)

    def clean_lines(self, lines: str) -> str:
        """Return the cleaned text of complete lines, without the newline of the last one.

        A line that contains carriage returns becomes several lines.
        """
        return self._remove(lines.rstrip("\r"))

    def _remove(self, text: str) -> str:
        cleaned = remove_controls(text, keep_colours=self._keep_colours)
        self.has_colours = self.has_colours or "\x1b" in cleaned
        return cleaned

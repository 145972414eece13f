"""Hide the values of secrets in what symphony shows.

All views hide the same values: those of variables and parameters whose names suggest a secret, and
the user name and password in a URL. Other text, such as the output of a program, can contain the
same values again; `HiddenValues` finds them there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "(hidden)"
# The text after a value that differs from another one only in its hidden part.
CHANGED = "(changed)"
# A variable with such a name usually contains a secret.
_SECRET_NAME = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD|CREDENTIALS?|AUTH|COOKIE)(_|$)",
    re.IGNORECASE,
)
# The user name and the password in a URL.
_USER_INFORMATION = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")
# The keys of a description below which the user chooses the names.
_NAMED_VALUES = ("env", "parameters")
_PATH_OF_VALUE = re.compile(rf"(?:^|\.)(?:{'|'.join(_NAMED_VALUES)})\.(?P<name>.+)$")
_SET_OPTION = "--set"
# A shorter text occurs in the output of a program by chance.
_LEAST_CHARACTERS = 6
_MAX_SECRET_BYTES = 64 * 1024


def shown_value(name: str, value: str) -> str:
    """Return the value of a variable or parameter, with the secrets in it hidden.

    >>> shown_value("DATABASE", "postgres://me:hunter2@db/main")
    'postgres://(hidden)@db/main'
    """
    return HIDDEN if _SECRET_NAME.search(name) else _USER_INFORMATION.sub(HIDDEN, value)


def shown_at(path: str, value: Any) -> Any:
    """Return a value of a description, with the secrets in it hidden.

    ``path`` contains the keys that lead to the value, separated by dots.

    >>> shown_at("processes.a.env.API_TOKEN", "abc"), shown_at("processes.a.replicas", 3)
    ('(hidden)', 3)
    """
    named = _PATH_OF_VALUE.search(path)
    if named is None or value is None:
        return shown_document(value)
    name = named["name"]
    return shown_value(name, value) if isinstance(value, str) else _shown_scalar(name, value)


def shown_document(value: Any) -> Any:
    """Return data of JSON, such as the description of an experiment, with the secrets in it hidden.

    A value that is hidden in one place is hidden everywhere in the document.

    >>> shown_document({"env": {"TOKEN": "s3cr3t"}, "args": ["--token", "s3cr3t"]})
    {'env': {'TOKEN': '(hidden)'}, 'args': ['--token', '(hidden)']}
    """
    return HiddenValues(secret_values(value)).in_document(_shown(value))


def shown_command(words: Iterable[str]) -> list[str]:
    """Return the words of a command line, with the values of secret parameters hidden.

    >>> shown_command(["launch", "rl.yml", "--set", "token=abc", "--set=seed=1"])
    ['launch', 'rl.yml', '--set', 'token=(hidden)', '--set=seed=1']
    """
    result = []
    follows_option = False
    for word in words:
        prefix, assignment = "", word
        if word.startswith(f"{_SET_OPTION}="):
            prefix, assignment = f"{_SET_OPTION}=", word.removeprefix(f"{_SET_OPTION}=")
        name, equals, value = assignment.partition("=")
        if equals and (prefix or follows_option):
            result.append(f"{prefix}{name}={shown_value(name, value)}")
        else:
            result.append(_USER_INFORMATION.sub(HIDDEN, word))
        follows_option = word == _SET_OPTION
    return result


def secret_values(document: Any) -> Iterator[str]:
    """Yield the values of the variables and parameters in ``document`` that views hide, and the
    passwords in URLs.
    """
    for name, value in _named_values(document):
        if not isinstance(value, str):
            continue
        if _SECRET_NAME.search(name):
            yield value
        for user_information in _USER_INFORMATION.findall(value):
            yield user_information.partition(":")[2]


def lines_of_secret(content: bytes) -> list[str]:
    """Return the texts that are hidden because a secret contains them: each of its lines.

    A large file is not a password or a key, and programs do not print it as a whole.
    """
    if len(content) > _MAX_SECRET_BYTES:
        return []
    return [line.strip() for line in content.decode("utf-8", "surrogateescape").splitlines()]


def shown_pair(path: str, first: Any, second: Any, hidden: HiddenValues) -> tuple[Any, Any]:
    """Return two different values of a description, with the secrets in them hidden.

    ``path`` is that of `shown_at`, and ``hidden`` contains the values that are hidden in all texts.
    Texts that differ only in what is hidden can be distinguished, because ``(changed)`` follows the
    second one.

    >>> shown_pair("env.API_TOKEN", "abc", "xyz", HiddenValues([]))
    ('(hidden)', '(hidden) (changed)')
    """
    shown_first, shown_second = (
        hidden.in_document(shown_at(path, value)) for value in (first, second)
    )
    return shown_first, _mark_changed(first, second, shown_first, shown_second)


def _mark_changed(first: Any, second: Any, shown_first: Any, shown_second: Any) -> Any:
    """Return the second of two shown values, in which what differs invisibly is marked."""
    if first == second or shown_first != shown_second:
        return shown_second
    if isinstance(shown_second, str):
        return f"{shown_second} {CHANGED}"
    if isinstance(shown_second, Mapping):
        return {
            key: _mark_changed(first[key], second[key], shown_first[key], item)
            for key, item in shown_second.items()
        }
    if isinstance(shown_second, list):
        items = zip(first, second, shown_first, shown_second, strict=True)
        return [_mark_changed(*item) for item in items]
    return shown_second


class HiddenValues:
    """Values that are hidden wherever they occur in a text.

    Values that occur in other texts by chance are not hidden there: short ones, and single words of
    lower-case letters, such as ``postgres`` or ``enabled``.
    """

    def __init__(self, values: Iterable[str]) -> None:
        found = {value for value in values if _is_distinctive(value)}
        self._values = sorted(found, key=lambda value: (-len(value), value))
        alternatives = "|".join(re.escape(value) for value in self._values)
        self._pattern = re.compile(alternatives) if self._values else None
        self._spans_lines = any("\n" in value for value in self._values)

    def __bool__(self) -> bool:
        """Return whether any value is hidden."""
        return self._pattern is not None

    def in_text(self, text: str) -> str:
        """Return a text in which the values are replaced."""
        if self._pattern is None or not self._occur_in(text):
            return text
        return self._pattern.sub(HIDDEN, text)

    def _occur_in(self, text: str) -> bool:
        """Return whether a text contains one of the values.

        Output rarely does, and this is much faster than a regular expression with alternatives.
        """
        return any(value in text for value in self._values)

    def in_document(self, value: Any) -> Any:
        """Return data of JSON in whose texts the values are replaced."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, Mapping):
            return {key: self.in_document(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.in_document(item) for item in value]
        return value

    def in_pieces(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield the pieces of a text in which the values are replaced.

        A value can begin in one piece and end in the next one; see `split_at_start`.
        """
        kept = ""
        for piece in pieces:
            shown, kept = self.split_at_start(kept + piece)
            if shown:
                yield self.in_text(shown)
        if kept:
            yield self.in_text(kept)

    def split_at_start(self, text: str) -> tuple[str, str]:
        """Divide the text that has been read so far into the part that can be shown, and its end.

        The end can be the start of a value of which the rest has not been read yet. It is empty
        unless the text ends like the start of a value.
        """
        if self._pattern is None or (text.endswith("\n") and not self._spans_lines):
            return text, ""
        position = min(_start_at_end(text, value) for value in self._values)
        if "\n" in text[position:]:
            # A reader of lines does not expect the first part of a line that is complete.
            position = text.rfind("\n", 0, position) + 1
        # A value that lies across this position is kept as a whole.
        if position < len(text) and self._occur_in(text):
            for match in self._pattern.finditer(text):
                if match.start() < position < match.end():
                    position = match.start()
        return text[:position], text[position:]


def _start_at_end(text: str, value: str) -> int:
    """Return the position from which a text is the incomplete start of a value.

    It is the length of the text if the text does not end like the start of the value.
    """
    position = max(0, len(text) - len(value) + 1)
    while True:
        position = text.find(value[0], position)
        if position < 0:
            return len(text)
        if value.startswith(text[position:]):
            return position
        position += 1


def _is_distinctive(value: str) -> bool:
    is_word = value.isalpha() and value.islower()
    return len(value) >= _LEAST_CHARACTERS and not is_word


def _named_values(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of all variables and parameters in a document."""
    if isinstance(document, Mapping):
        for key, item in document.items():
            if key in _NAMED_VALUES and isinstance(item, Mapping):
                yield from ((str(name), value) for name, value in item.items())
            else:
                yield from _named_values(item)
    elif isinstance(document, (list, tuple)):
        for item in document:
            yield from _named_values(item)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return _USER_INFORMATION.sub(HIDDEN, value)
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    result = {}
    for key, item in value.items():
        if key in _NAMED_VALUES and isinstance(item, Mapping):
            result[key] = {
                name: _shown_scalar(str(name), content) for name, content in item.items()
            }
        else:
            result[key] = _shown(item)
    return result


def _shown_scalar(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return shown_value(name, value)
    return HIDDEN if value is not None and _SECRET_NAME.search(name) else _shown(value)

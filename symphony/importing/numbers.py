"""The numbers in compose files, which compose reads as numbers and writes as texts."""

from __future__ import annotations

import re

from symphony.model.document.documents import FromTag

_BASES = {"0x": 16, "0o": 8, "0b": 2}
# A larger number is not written with all its digits.
_MAX_DIGITS = 15


class Number(str):
    """A number that is not in quotes, as it is written in the file."""

    __slots__ = ()

    def value(self) -> str:
        """Return the text that a container receives, which is the shortest one for the number.

        A number that begins with 0 is octal.

        >>> Number("022").value(), Number("1.50").value(), Number("1_000").value()
        ('18', '1.5', '1000')
        """
        text = self.replace("_", "").lower()
        sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
        if len(digits) > _MAX_DIGITS:
            return str(self)
        if digits[:2] in _BASES:
            return sign + str(int(digits[2:], _BASES[digits[:2]]))
        if re.fullmatch("0[0-7]+", digits):
            return sign + str(int(digits, 8))
        if digits.isdecimal():
            return sign + str(int(digits))
        if re.fullmatch(r"\d*\.\d+|\d+\.", digits):
            number = float(digits)
            return sign + (str(int(number)) if number.is_integer() else repr(number))
        return str(self)


TAGS: dict[str, FromTag] = {
    f"tag:yaml.org,2002:{kind}": lambda _tag, text: Number(text) for kind in ("int", "float")
}

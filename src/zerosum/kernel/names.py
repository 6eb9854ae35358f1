"""Names of studies, sites and populations. They come from other parties, and terminals obey some control characters."""

from __future__ import annotations

import re
import unicodedata

from zerosum.errors import BadParameter

MOST_CHARACTERS = 200  # characters
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, formatting (such as text that runs backwards), line separators


def check_name(what: str, name: str) -> None:
    """Refuse an empty name, one of more than MOST_CHARACTERS characters, and one with invisible characters.

    >>> check_name("a site", "Saint Mary's, ward 7")
    """
    if not name:
        raise BadParameter(f"{what} must have a name, got an empty one")
    if len(name) > MOST_CHARACTERS:
        raise BadParameter(f"the name of {what} has more than {MOST_CHARACTERS} characters")
    if any(unicodedata.category(character) in _UNSEEN for character in name):
        raise BadParameter(f"the name of {what} has characters that cannot be seen")


def check_identity(what: str, identity: str) -> None:
    """Refuse what is not the public half of a signing key."""
    if not re.fullmatch("[0-9a-f]{64}", identity):
        raise BadParameter(f"{what} must be 32 bytes in hex")


def visible(text: str) -> str:
    """The text with every invisible character written out, for records made before names were checked.

    >>> visible("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    if text.isprintable():  # most texts: no character of these categories is printable
        return text
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _UNSEEN else character
        for character in text
    )


def counted(number: int, what: str, many: str = "") -> str:
    """A number with its noun in singular or plural.

    >>> counted(1, "entry", "entries"), counted(0, "entry", "entries"), counted(2, "round")
    ('1 entry', '0 entries', '2 rounds')
    """
    return f"{number} {what if number == 1 else many or what + 's'}"

"""Characters that would steer a terminal, shown instead of sent: a label or a file name may hold any."""

import re

# C0 apart from tab and line feed, DEL and C1, what turns the direction of writing, and halves of surrogate pairs
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def visible(text: str) -> str:
    r"""The text with characters that steer a terminal written out: `\x1b`, `\u202e`."""
    return _STEERING.sub(lambda match: escaped(match[0]), text)


def visible_beside_colours(text: str) -> str:
    """`visible` for text that was coloured for a terminal: the colours stay."""
    parts = _COLOUR.split(text)
    parts[::2] = map(visible, parts[::2])
    return "".join(parts)


def visible_json(text: str) -> str:
    """`visible` for JSON, which stays JSON: there such characters stand in strings alone."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def literal(text: str) -> str:
    """`visible` for matplotlib, which takes text between dollar signs for mathematics."""
    return visible(text).replace("$", r"\$")


def escaped(character: str) -> str:
    r"""A character as Python writes it in ASCII: `\x9b`, `\u2191`."""
    return character.encode("unicode_escape").decode("ascii")

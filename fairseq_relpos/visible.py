"""Text from files, such as names, for a terminal."""

import re


def visible(text: str) -> str:
    """Returns the text with control characters other than line breaks as Python writes them: ``\\x1b`` for ESC. A
    terminal would obey them."""
    return re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", lambda found: repr(found[0])[1:-1], text)

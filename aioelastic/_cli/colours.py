"""The few colours of what the launcher itself says (pure)."""

from typing import Final

BOLD: Final = 1
RED: Final = 31
GREEN: Final = 32
YELLOW: Final = 33


def painted(text: str, *attributes: int, colour: bool = True) -> str:
    """Give a text in colours.

    Args:
        text: The text.
        attributes: The numbers of colour sequences (SGR).
        colour: Whether there are colours at all.

    Returns:
        The text; without colours as it is.
    """
    if not colour or not text:
        return text
    return f"\x1b[{';'.join(map(str, attributes))}m{text}\x1b[0m"

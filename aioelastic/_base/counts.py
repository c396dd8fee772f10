"""Numbers of things as a person says them (pure)."""


def counted(number: int, noun: str) -> str:
    """Give a number with its noun.

    Example:
        >>> counted(1, "rank"), counted(2, "rank")
        ('1 rank', '2 ranks')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

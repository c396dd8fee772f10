"""Durations as a person says them (pure)."""


def spoken(seconds: float, digits: int = 0) -> str:
    """Give a duration in words.

    Args:
        seconds: The duration.
        digits: Digits after the point of what is below a minute.

    Returns:
        The duration, rounded down.

    Example:
        >>> spoken(12.34, 1), spoken(12.34), spoken(184), spoken(7505)
        ('12.3 s', '12 s', '3 min 4 s', '2 h 5 min')
    """
    if seconds < 60:  # noqa: PLR2004 - a minute
        scale = 10**digits
        return f"{int(seconds * scale) / scale:.{digits}f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def precise(seconds: float) -> str:
    """Give a duration in words, in hundredths where they may be all there is.

    Example:
        >>> precise(0.0204), precise(1.26), precise(75)
        ('0.02 s', '1.2 s', '1 min 15 s')
    """
    return spoken(seconds, 2 if seconds < 1 else 1)

"""What a rank is."""


def is_rank(key: object, nprocs: int) -> bool:
    """Tell whether a key of a map is a rank of the group; ``True`` equals 1 and is none."""
    return isinstance(key, int) and not isinstance(key, bool) and 0 <= key < nprocs

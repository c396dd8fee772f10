"""Numbers of things as a person says them."""

from aioelastic._base.counts import counted


def test_nouns_are_counted() -> None:
    """One is singular, nothing and more are plural."""
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]

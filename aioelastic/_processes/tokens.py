"""Tokens: which rank of which group a process descends from."""

import os
from collections.abc import Mapping

from aioelastic._child.token import TOKEN_VARIABLE


def new_group_token() -> str:
    """Give a token that no other group has."""
    return os.urandom(8).hex()


def token_of_rank(group: str, rank: int) -> str:
    """Give the token of one rank."""
    return f"{group}.{rank}"


def group_and_rank(token: str) -> tuple[str, int]:
    """Take a rank's token apart."""
    group, _, rank = token.partition(".")
    return group, int(rank)


def token_variable(token: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Give the variable that marks a rank; where the supervisor is a rank itself it keeps that mark, too."""
    before = inherited.get(TOKEN_VARIABLE)
    return {TOKEN_VARIABLE: f"{before},{token}" if before else token}

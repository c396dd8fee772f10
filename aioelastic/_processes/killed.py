"""The end of a process that was killed because its start is given up."""

import asyncio
import logging

from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._base.shielding import settle
from aioelastic._processes.child import Child
from aioelastic._processes.rank_process import RankProcess

logger = logging.getLogger("aioelastic")


async def settle_killed(process: Child | RankProcess) -> None:
    """Wait for the end of a process that was sent SIGKILL, whatever cancels the caller meanwhile.

    With a bound, for SIGKILL does not end every process; then a warning says so.
    """
    ending = asyncio.ensure_future(process.wait_status())
    try:
        await settle(asyncio.ensure_future(asyncio.wait([ending], timeout=REAP_TIMEOUT)))
    finally:
        if not ending.done():
            ending.cancel()
            logger.warning("SIGKILL does not end pid %d, given up at its start (uninterruptible sleep?)", process.pid)

"""A web application supervises two workers, and shows their lines in the browser as they are written.

    pip install '.[examples]'                  # in a clone of the repository
    python docs/examples/web_application.py    # then open http://127.0.0.1:8000, and kill a worker by its pid

The lifespan starts the workers and ends them. Each is a group of its own, so one that dies is started again alone,
after a pause that grows. Each browser reads the worker's file at its own pace. ^C ends the workers first, and so the
streams, for which the server waits; ``uvicorn web_application:app`` needs ``--timeout-graceful-shutdown 1`` for that.
"""

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from socket import socket
from typing import TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aioelastic import AioelasticError, Backoff, DefaultLogsSpecs, PContext, Std, start_processes

SCRIPTS = {
    "load": "while :; do cat /proc/loadavg; sleep 1; done",
    "files": "for each in /etc/*; do wc -l $each; sleep 0.3; done",
}
BACKOFF, HEALTHY_AFTER = Backoff(first=0.5, factor=2, cap=30), 60.0
PAGE = Path(__file__).with_suffix(".html")

Stand: TypeAlias = tuple[str, PContext | None]
"""How a worker stands, and its group while that runs."""


class Worker:
    """Runs a script, again and again, until it is closed."""

    def __init__(self, name: str, logs: str) -> None:
        self._name = name
        self._logs = logs
        self._stand: Stand | None = ("begins", None)
        self._changed = asyncio.Condition()
        self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End it with all that it has started; its readers come to their end."""
        self._running.cancel()
        await asyncio.wait([self._running])

    async def read(self) -> AsyncIterator[str]:
        """Give one browser, as server-sent events, how the worker stands and what it writes."""
        shown: Stand | None = None
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._stand is not shown)
            if (shown := self._stand) is None:
                return
            words, context = shown
            yield as_event("stand", words=words, runs=context is not None)
            if context is not None:
                async for line in context.lines(last=1000):
                    yield as_event("line", text=line.text, error=line.stream is Std.ERR)

    async def _run(self) -> None:
        restarts, ended = 0, ""
        try:
            while True:
                begin = time.monotonic()
                ended = await self._run_once(ended)
                restarts = 1 if time.monotonic() - begin > HEALTHY_AFTER else restarts + 1
                await self._tell((f"{ended}; begins again in {BACKOFF.delay(restarts):.1f} s", None))
                await asyncio.sleep(BACKOFF.delay(restarts))
        finally:
            await self._tell(None)

    async def _run_once(self, ended: str) -> str:
        specs = DefaultLogsSpecs(log_dir=self._logs, redirects=Std.ALL)
        try:
            async with start_processes(self._name, "sh", {0: ("-c", SCRIPTS[self._name])}, logs_specs=specs) as context:
                past = ended and f" (the one before: {ended})"
                await self._tell((f"runs, pid {context.pids()[0]}{past}", context))
                result = await context.wait()
        except AioelasticError as error:  # it could not start, for want of memory perhaps
            return str(error)
        return f"{result.exits[0].cause.value}: {result.exits[0].signal or result.exits[0].exitcode}"

    async def _tell(self, stand: Stand | None) -> None:
        async with self._changed:
            self._stand = stand
            self._changed.notify_all()


def as_event(kind: str, **data: object) -> str:
    """Write a server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


async def lines(request: Request) -> Response:
    """Stream one worker's lines, until the browser goes or the worker is closed."""
    if (worker := request.app.state.workers.get(request.path_params["name"])) is None:
        return Response(status_code=404)
    return StreamingResponse(worker.read(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def close_workers() -> None:
    """End all workers at the same time."""
    await asyncio.gather(*(worker.close() for worker in app.state.workers.values()))


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Have the workers run as long as the application does."""
    with tempfile.TemporaryDirectory(prefix="aioelastic-web-") as logs:
        app.state.workers = {name: Worker(name, logs) for name in SCRIPTS}
        try:
            yield
        finally:
            await close_workers()


class Server(uvicorn.Server):
    """Ends the streams before it waits for the end of all responses."""

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Shut down."""
        await close_workers()
        await super().shutdown(sockets)


app = Starlette(
    routes=[
        Route("/", FileResponse(PAGE)),
        Route("/workers", JSONResponse(list(SCRIPTS))),
        Route("/workers/{name}/lines", lines),
    ],
    lifespan=lifespan,
)

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        # A browser that does not read could hold the end up; the limit is for that one.
        Server(uvicorn.Config(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=2)).run()

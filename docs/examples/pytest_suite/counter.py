"""A program to be tested: a server counts, and clients have it count.

It is run as ``counter.py serve``, which says on which port it listens, and ``counter.py count PORT NAME TIMES``.
"""

import asyncio
import collections
import signal
import sys


async def serve() -> None:
    """Count the names that clients send, a line each, until SIGTERM comes."""
    counts: collections.Counter[str] = collections.Counter()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while name := (await reader.readline()).decode().strip():
            counts[name] += 1
            writer.write(f"{counts[name]}\n".encode())
        writer.close()

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(f"listening on port {server.sockets[0].getsockname()[1]}", flush=True)
    await stopped.wait()
    print(f"counted {counts.total()}", flush=True)


async def count(port: int, name: str, times: int) -> None:
    """Send a name some times, and print the last answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(times):
        writer.write(f"{name}\n".encode())
        answer = await reader.readline()
    print(answer.decode(), end="")
    writer.close()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        asyncio.run(count(int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))

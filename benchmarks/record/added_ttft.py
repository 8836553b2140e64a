"""What a relay adds to the time to first token, by pairs: every second request goes direct.

Run alone on a quiet machine: .venv/bin/python benchmarks/record/added_ttft.py [--seconds 60] [--rate 60]
Writes benchmarks/record/results.json with every stamp, and prints a table.

A server answers each chat with 32 events, the first at once and one each 20 ms after. A client on bare
sockets sends Poisson arrivals, alternating between the server itself and the relay in front of it, over
connections that are kept alive. Measured are the recorder and, for comparison, a relay of 30 lines over
aiohttp's server and client that records nothing. TTFT counts from a request's write to its first event.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import aiohttp
import psutil
import uvloop
from aiohttp import web

ROOT = Path(__file__).parents[2]
EVENTS, GAP_S = 32, 0.02
WARM_S = 3.0
PROMPT = "The quick brown fox jumps over the lazy dog. " * 50
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _event(number: int) -> bytes:
    choice = {
        "index": 0,
        "delta": {"content": f" word{number}"},
        "finish_reason": None if number < EVENTS - 1 else "stop",
    }
    fields = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
    }
    data = b"data: " + json.dumps(fields).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM = [_event(number) for number in range(EVENTS)]
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 510, "completion_tokens": 32}}\n\n'
END = b"%x\r\n%b\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n" % (len(USAGE), USAGE)


class Server(asyncio.Protocol):
    """Answers requests that come one at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        self._transport, self._data = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        """Answer a request that is whole."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            self._data = b""
            self._transport.write(HEAD + STREAM[0])
            asyncio.get_running_loop().call_later(GAP_S, self._say, 1)

    def _say(self, number: int) -> None:
        if number == EVENTS:
            self._transport.write(END)
        else:
            self._transport.write(STREAM[number])
            asyncio.get_running_loop().call_later(GAP_S, self._say, number + 1)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    gc.freeze()
    gc.disable()
    await server.serve_forever()


async def _relay(upstream: str) -> None:
    """The simple choice, for comparison."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)

    async def pass_on(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with session.post(upstream + request.path, data=body, headers=request.headers) as answer:
            response = web.StreamResponse(status=answer.status, headers={"content-type": answer.content_type})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    app = web.Application()
    app.router.add_post("/{path:.*}", pass_on)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    gc.freeze()
    await asyncio.Event().wait()


class Call(asyncio.Protocol):
    """A connection of the client; one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to the server."""
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes) -> asyncio.Future[bool]:
        """Send a request; True once its answer is whole."""
        self._done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._first_ns, self._tail = 0, b""
        self._sent_ns = time.perf_counter_ns()
        self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        """Stamp the first event, and see the end."""
        now = time.perf_counter_ns()
        self._tail = self._tail[-2000:] + data
        if not self._first_ns and b"data:" in self._tail:
            self._first_ns = now
        if self._tail.endswith(b"0\r\n\r\n"):
            self._done.set_result(True)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The request failed."""
        if not self._done.done():
            self._done.set_result(False)

    @property
    def ttft_us(self) -> float:
        """From the write to the first event, in µs."""
        return (self._first_ns - self._sent_ns) / 1e3


async def _measure(addresses: list[str], *, seconds: float, rate: float, seed: int) -> list[list[float]]:
    """TTFT in µs of each request, by address; arrivals take turns."""
    loop = asyncio.get_running_loop()
    draw = random.Random(seed)  # noqa: S311  arrivals hide nothing
    fields = {"model": "m", "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    body = json.dumps(fields).encode()
    ports = [int(address.removesuffix("/v1").rpartition(":")[2]) for address in addresses]
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request += b"Content-Length: %d\r\n\r\n" % len(body) + body
    idle: list[list[Call]] = [[] for _ in ports]
    found: list[list[float]] = [[] for _ in ports]
    tasks = set()

    async def ask(which: int, counts: bool) -> None:
        if not idle[which]:
            _, made = await loop.create_connection(Call, "127.0.0.1", ports[which])
            await asyncio.sleep(0.005)  # a connection that is warm, like those that are kept alive
            idle[which].append(made)
        call = idle[which].pop()
        if await call.send(request):
            idle[which].append(call)
            if counts:
                found[which].append(call.ttft_us)

    gc.collect()
    gc.freeze()
    gc.disable()
    start, at, number = loop.time(), 0.0, 0
    while at < seconds + WARM_S:
        await asyncio.sleep(max(0.0, start + at - loop.time()))
        task = loop.create_task(ask(number % len(ports), at > WARM_S))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        number += 1
        at += draw.expovariate(rate * len(ports))
    await asyncio.gather(*tasks)
    gc.enable()
    return found


def quantile(values: list[float], percent: float) -> float:
    """The value below which that share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _summary(direct: list[float], through: list[float]) -> dict[str, Any]:
    draw = random.Random(0)  # noqa: S311  as above
    spread = []
    for _ in range(1000):
        one, other = draw.choices(direct, k=len(direct)), draw.choices(through, k=len(through))
        spread.append(quantile(other, 99) - quantile(one, 99))
    rows = {
        f"p{percent}_us": {
            "direct": quantile(direct, percent),
            "through": quantile(through, percent),
            "added": quantile(through, percent) - quantile(direct, percent),
        }
        for percent in (50, 90, 99)
    }
    return {
        "requests": len(through),
        **rows,
        "added_p99_us_95": [quantile(spread, 2.5), quantile(spread, 97.5)],
    }


def _child(words: Sequence[str | Path]) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    return process, cast("TextIO", process.stdout).readline().strip()


def _cpu_s(process: subprocess.Popen[str]) -> tuple[float, float]:
    """CPU time of a process, and of its children."""
    whole = psutil.Process(process.pid)
    own, *others = (sum(one.cpu_times()[:2]) for one in (whole, *whole.children(recursive=True)))
    return own, sum(others)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=60.0, help="requests/s to each of the two")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--relay")
    given = parser.parse_args()
    if given.serve or given.relay:
        uvloop.run(_serve() if given.serve else _relay(given.relay))
        return
    ours: list[str | Path] = [sys.executable, __file__]
    report: dict[str, Any] = {
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
        "load_before": os.getloadavg()[0],
        "rate_rps_each": given.rate,
        "seconds": given.seconds,
        "events_a_request": EVENTS,
        "gap_s": GAP_S,
        "prompt_bytes": len(PROMPT),
        "relays": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        server, direct = _child([*ours, "--serve"])
        upstream = direct.removesuffix("/v1")
        command = Path(sys.executable).with_name("autotune")
        recorder: list[str | Path] = [
            command,
            "record",
            "--upstream",
            upstream,
            "--out",
            f"{folder}/out.jsonl",
            "--listen",
            "127.0.0.1:0",
        ]
        arms: dict[str, list[str | Path]] = {
            "autotune record": recorder,
            "aiohttp relay": [*ours, "--relay", upstream],
        }
        for name, words in arms.items():
            relay, address = _child(words)
            before = _cpu_s(relay)
            found = uvloop.run(_measure([direct, address], seconds=given.seconds, rate=given.rate, seed=1))
            after, asked = _cpu_s(relay), given.rate * (given.seconds + WARM_S)
            relay.terminate()
            relay.wait()
            spent = [(late - early) / asked * 1e6 for early, late in zip(before, after, strict=True)]
            summary = _summary(*found) | {
                "relay_cpu_us_a_request": spent[0],
                "writer_cpu_us_a_request": spent[1],
            }
            report["relays"][name] = summary | {"direct_us": found[0], "through_us": found[1]}
            print(name, json.dumps(summary))
        rows = Path(f"{folder}/out.jsonl").read_text().splitlines()
        report["recorded"] = len(rows) - 1
        server.terminate()
        server.wait()
    headline = report["relays"]["autotune record"]
    report["headline"] = {
        "added_ttft_p99_ms": headline["p99_us"]["added"] / 1e3,
        "added_ttft_p50_ms": headline["p50_us"]["added"] / 1e3,
    }
    Path(__file__).with_name("results.json").write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()

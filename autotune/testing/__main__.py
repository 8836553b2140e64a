"""`python -m autotune.testing serve MODEL …`: from the command line to the exit code."""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from autotune.testing.batching import Batcher, Limits, StepTime
from autotune.testing.script import Fault, Kind, Script
from autotune.testing.server import Server
from autotune.testing.settings import Settings, UsageError, parse
from autotune.testing.start import StartError, check, kv_bytes, log, log_failure
from autotune.testing.wire import Connection

_CHILD = "import time; time.sleep(60)"  # longer than any test, shorter than a forgotten process


def main() -> int:
    """What the `vllm` command does; the exit code."""
    script, arguments = Script.parse(os.environ.get("AUTOTUNE_SCRIPT", "")), sys.argv[1:]
    if arguments[:1] in (["--version"], ["-v"]):
        sys.stdout.write(f"{script.version}\n")
        return 0
    try:
        settings = parse(arguments, os.environ)
    except UsageError as error:
        sys.stderr.write(f"usage: vllm serve [model_tag] [options]\n{error}\n")
        return 2
    faults: dict[Kind, Fault] = {fault.fault: fault for fault in script.faults if fault.arm(settings)}
    if "ignore_sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # children inherit that
    try:
        server = _start(settings, script, faults)
        # select() takes microseconds where epoll rounds up to whole milliseconds.
        loop = asyncio.SelectorEventLoop
        with (
            _children(children=script.children, orphan="orphan" in faults),
            asyncio.Runner(loop_factory=lambda: loop(selectors.SelectSelector())) as runner,
        ):
            runner.run(_serve(server))
    except StartError as error:
        log_failure(error)
        return 1
    return 0


def _start(settings: Settings, script: Script, faults: Mapping[Kind, Fault]) -> Server:
    """All that happens before the port opens."""
    began = time.monotonic()
    log("APIServer", f"non-default args: {dict(settings.given)}")
    shape, length, kv_tokens = check(settings, script, faults)
    if "exit_137" in faults:
        os.kill(os.getpid(), signal.SIGKILL)
    while "hang" in faults:
        signal.pause()
    if "port_in_use" in faults:
        raise StartError("APIServer", "OSError: [Errno 98] Address already in use")
    time.sleep(script.start_s + (faults["slow_start"].seconds if "slow_start" in faults else 0))
    device = "CPU" if script.version.endswith("+cpu") else "GPU"
    if device == "GPU":
        log("EngineCore", "Model loading took 0.25 GiB memory and 0.100000 seconds")
        log("EngineCore", f"Available KV cache memory: {kv_bytes(settings, script) / 2**30:.2f} GiB")
    log(
        "EngineCore",
        f"{device} KV cache size: {kv_tokens:,} tokens, Maximum concurrency for {length:,} tokens per "
        f"request: {kv_tokens / length:.2f}x",
    )
    took_s = time.monotonic() - began
    log("EngineCore", f"init engine (profile, create kv cache, warmup model) took {took_s:.2f} s")
    speed, number = script.speed_of(settings), settings.number
    caching = settings.options["enable_prefix_caching"] == "true"
    limits = Limits(
        max_num_seqs=number("max_num_seqs"),
        max_num_batched_tokens=number("max_num_batched_tokens"),
        long_prefill_token_threshold=number("long_prefill_token_threshold"),
        kv_tokens=kv_tokens,
        cache_block=number("block_size") if caching else 0,
    )
    step_time = StepTime(
        step_s=script.step_s / speed,
        prefill_s_per_token=script.prefill_s_per_token / speed,
        decode_s_per_seq=script.decode_s_per_seq / speed,
    )
    return Server(
        settings=settings,
        script=script,
        shape=shape,
        batcher=Batcher(limits=limits, step_time=step_time),
        max_model_len=length,
        faults=faults,
    )


@contextmanager
def _children(*, children: bool, orphan: bool) -> Iterator[None]:
    """Processes of the engine in its own group: one that ends with it, and one that outlives it."""
    command = [sys.executable, "-I", "-S", "-c", _CHILD]
    if orphan:
        subprocess.Popen([*command, "VLLM::Worker"])
    child = subprocess.Popen([*command, "VLLM::EngineCore"]) if children else None
    try:
        yield
    finally:
        if child is not None:
            child.kill()
            child.wait()


async def _serve(server: Server) -> None:
    """Serve until a signal or the death of the engine; raises `StartError` for a port in use."""
    loop, options = asyncio.get_running_loop(), server.settings.options
    stepping = loop.create_task(server.batcher.run())
    try:
        listening = await loop.create_server(
            lambda: Connection(server.handle), options["host"], int(options["port"])
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise StartError("APIServer", "OSError: [Errno 98] Address already in use") from error
    heeded = {signal.SIGINT} if "ignore_sigterm" in server.faults else {signal.SIGINT, signal.SIGTERM}
    for number in heeded:
        loop.add_signal_handler(number, server.stop.set)
    if signal.SIGTERM not in heeded:
        loop.add_signal_handler(signal.SIGTERM, log, "APIServer", "SIGTERM is ignored")
    log("APIServer", "Application startup complete.")
    await server.stop.wait()
    stepping.cancel()
    server.break_off()
    listening.close()
    if server.dead:
        log("EngineCore", "EngineCore encountered a fatal error.", level="ERROR")
    log("APIServer", "Application shutdown complete.")


if __name__ == "__main__":
    sys.exit(main())

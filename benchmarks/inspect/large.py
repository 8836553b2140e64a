"""Inspect a large recording of the Mooncake kind: seconds and peak memory of the command.

.venv/bin/python benchmarks/inspect/large.py [BYTES] > benchmarks/inspect/results.json

The file is made in the temporary folder, from one seed, and removed. Half of all requests
continue a conversation, whose prompt of 512-token blocks grows; half begin one behind a block that all share.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = Path(sys.executable).with_name("autotune")
BLOCK = 512


def write(path: Path, size_bytes: int) -> int:
    """Make the file; how many requests it holds."""
    draw = random.Random(0)  # noqa: S311  lengths hide nothing
    open_talks: list[list[int]] = []
    next_id, written, requests = 1, 0, 0
    with path.open("w", encoding="ascii") as stream:
        while written < size_bytes:
            if open_talks and draw.random() < 0.5:
                ids = open_talks[draw.randrange(len(open_talks))]
            else:
                ids = [0]
                open_talks.append(ids)
            more = 1 + int(draw.expovariate(1 / 12))
            ids.extend(range(next_id, next_id + more))
            next_id += more
            row = {
                "timestamp": requests // 10 * 3000,
                "input_length": len(ids) * BLOCK - draw.randrange(BLOCK),
                "output_length": 1 + int(draw.expovariate(1 / 350)),
                "hash_ids": ids,
            }
            written += stream.write(json.dumps(row) + "\n")
            requests += 1
            if len(ids) > 100 or len(open_talks) > 200:
                open_talks.pop(draw.randrange(len(open_talks)))
    return requests


def measure(path: Path) -> dict[str, object]:
    """Run the command once; what it cost, by the kernel's account of the child, and what it said."""
    begun = time.monotonic()
    with subprocess.Popen([COMMAND, "workload", "inspect", "--json", path], stdout=subprocess.PIPE) as child:
        said = child.stdout.read() if child.stdout else b""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return {
        "exit_code": child.returncode,
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "said": json.loads(said) | {"file": path.name},
    }


def main() -> None:
    """Make, measure, remove."""
    size_bytes = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**9
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.jsonl"
        requests = write(path, size_bytes)
        facts = {"file_bytes": path.stat().st_size, "requests": requests, "python": platform.python_version()}
        print(json.dumps(facts | measure(path), indent=2))


if __name__ == "__main__":
    main()

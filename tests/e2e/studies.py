"""A place to run the installed command in: settings, traffic, a model, a space and a scripted engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import psutil
import yaml

from autotune.testing import Script, install, write_model

AUTOTUNE = Path(sys.executable).with_name("autotune")
DEADLINE_S = 60.0
SLA = "ttft_p90=4s"
"""Loose, so that a busy machine decides nothing: our client may be 400 ms late before a window is void."""
SPACE: dict[str, Any] = {
    "name": "small",
    "engine": "vllm",
    "device": "cpu",
    "versions": ">=0.26,<0.34",
    "fixed": {"kv_cache_memory_bytes": "600M"},
    "parameters": {
        "max_num_batched_tokens": {"levels": [512, 1024, 2048], "default": 2048},
        "max_num_seqs": {"levels": [16, 32, 64, 128], "default": 128},
        "enforce_eager": {"levels": [False, True], "default": False},
    },
    "presets": [{"name": "short-steps", "settings": {"max_num_batched_tokens": 512}, "why": "a test"}],
}
SETTINGS: dict[str, Any] = {
    "model": "model",
    "workload": "traffic.jsonl",
    "space": "space.yaml",
    "engine_python": "engine/bin/python",
    "gpus": "none",
    "quality": "off",
    "trials": 3,
    # 20 requests/s and more: a window lasts half a second. The tests' own machine may be busy.
    "load": {
        "window": "300ms",
        "max_window": "2s",
        "window_requests": 10,
        "lead_in": "100ms",
        "max_windows": 1,
        "start_speed": 4,
        "min_speed": 1,
        "max_foreign_cpu": "100%",
    },
}
TRAFFIC = "".join(
    f'{{"offset_s": {index / 5}, "prompt_tokens": {20 + index % 50}, "output_tokens": {4 + index % 4}}}\n'
    for index in range(60)
)


def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    deadline, tick = time.monotonic() + within_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        tick.wait(0.02)


def load(**changes: object) -> dict[str, object]:
    """The load section with some keys replaced."""
    kept: dict[str, object] = SETTINGS["load"]
    return kept | changes


@dataclass(frozen=True)
class Said:
    """What a command that ended left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


@dataclass(frozen=True)
class Running:
    """A command under way, its output in files."""

    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    def saw(self, event: str, **words: object) -> bool:
        """True once `--json` has told an event of that name with these fields."""
        told = (
            json.loads(line)
            for line in self.stdout.read_text().splitlines(keepends=True)
            if line[-1:] == "\n"
        )
        return any(one["event"] == event and words.items() <= one.items() for one in told)

    def wait(self) -> Said:
        code = self.process.wait(DEADLINE_S)
        return Said(code, self.stdout.read_text(), self.stderr.read_text())


@dataclass(frozen=True)
class Place:
    """A folder with everything a run needs; commands run in it, with no environment but what is said here."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def make(
        cls, folder: Path, *, script: Script | None = None, space: object = None, **settings: object
    ) -> Place:
        """Write the files; `settings` replace those of `SETTINGS`, None removes one."""
        folder.mkdir(parents=True, exist_ok=True)
        install(folder / "engine", script=script or Script())
        write_model(folder / "model")
        (folder / "traffic.jsonl").write_text(TRAFFIC)
        (folder / "space.yaml").write_text(yaml.safe_dump(space or SPACE, sort_keys=False))
        place = cls(folder)
        place.configure(**settings)
        return place

    def configure(self, **settings: object) -> None:
        kept = {name: value for name, value in (SETTINGS | settings).items() if value is not None}
        (self.folder / "autotune.yaml").write_text(yaml.safe_dump(kept))

    @property
    def ports(self) -> str:
        """A range for this place alone, below those that the kernel gives out."""
        low = 20_000 + crc32(str(self.folder).encode()) % 300 * 40
        return f"{low}-{low + 39}"

    def environ(self) -> dict[str, str]:
        path = os.pathsep.join((str(AUTOTUNE.parent), "/usr/local/bin", "/usr/bin", "/bin"))
        return {"PATH": path, "HOME": str(self.folder), "LANG": "C.UTF-8", "COLUMNS": "80", **self.env}

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Said:
        """The command from start to end."""
        done = subprocess.run(
            [AUTOTUNE, *words],
            cwd=self.folder,
            env=self.environ() | dict(env or {}),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def tuning(self, *words: str, out: str = "out", sla: str = SLA) -> list[str]:
        """The words of an ordinary `autotune run`."""
        return ["run", "--sla", sla, "--ports", self.ports, "--out", out, *words]

    def tune(self, *words: str, out: str = "out", sla: str = SLA) -> Said:
        return self.run(*self.tuning(*words, out=out, sla=sla))

    @contextmanager
    def start(self, *words: str) -> Iterator[Running]:
        """The command under way; ended with the block at the latest, by SIGTERM."""
        stdout, stderr = self.folder / "stdout", self.folder / "stderr"
        with stdout.open("wb") as told, stderr.open("wb") as talk:
            process = subprocess.Popen(
                [AUTOTUNE, *words],
                cwd=self.folder,
                env=self.environ(),
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=talk,
            )
        with process:
            try:
                yield Running(process, stdout, stderr)
            finally:
                process.terminate()

    def study(self, out: str = "out") -> Study:
        return Study(self.folder / out, self.folder)


@dataclass(frozen=True)
class Study:
    """A run folder, read without `autotune`."""

    folder: Path
    place: Path

    def journal(self, event: str) -> list[dict[str, Any]]:
        """The whole lines of that event."""
        path = self.folder / "journal.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [
            line for text in lines if text.endswith("\n") and (line := json.loads(text))["event"] == event
        ]

    @property
    def trials(self) -> list[dict[str, Any]]:
        return [line["trial"] | {"kind": line["kind"]} for line in self.journal("trial")]

    @property
    def points(self) -> list[dict[str, Any]]:
        return [trial["point"] for trial in self.trials]

    def engine_processes(self) -> list[str]:
        """Everything alive in a session of the journal, or with a path of this place in its command line."""
        sessions = {line["process"]["session"] for line in self.journal("launched")}
        found = []
        for process in psutil.process_iter():
            try:
                command = " ".join(process.cmdline())
                ours = os.getsid(process.pid) in sessions or f"{self.place}/" in command
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid}: {command}")
            except (psutil.Error, ProcessLookupError):
                continue
        return found

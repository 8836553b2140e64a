"""All clients side by side against the server of known truth.

    python benchmarks/replay/run.py --all [--repeats 2] [--seconds 10] [--budget-min 14]

Every client gets the same schedules as one trace file and one core for all its processes; the server has the
other. Trials are interleaved: repeat by repeat, level by level, client by client. A client whose TTFT p99 is
more than twice the truth at one level is not asked for the levels above, but for the one at which send errors
are compared. Where repeats disagree on "within 2 %", the level is tried once more; a trial in which the
server itself was late is repeated, and the quieter one kept. A trial that fails is recorded with its reason.
Writes `raw.json` after every trial, then `results.json` and the tables in README.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trial
from clients.aiperf_profile import Aiperf
from clients.contract import Client
from clients.guidellm_run import Guidellm
from clients.ours import Ours
from clients.vllm_bench import VllmBench
from figures import Figures
from raw import Record, Setting, write_raw
from report import render

ROOT = Path(__file__).parents[2]
LEVELS = (50, 100, 200, 220, 400, 800)
HOPELESS = 1.0
"""A client this far off (1: twice the truth) is not asked for more."""
WITHIN = 0.02
SEND_LEVEL = 200
"""294 requests/s: where send errors are compared, and where our own replay is also asked to split the load
over two processes, still on one core."""
VOID_MS, AGAIN = 1.0, 3
"""Lateness p99 of the server from which a trial decides nothing, since it is 2 % of the truth by itself; how
many trials of one client at one level may be repeated for it."""
VOID = "void"


@dataclass(slots=True)
class Session:
    """What has been measured so far, and how long there is."""

    setting: Setting
    cores: list[int]
    tokenizer: Path
    out: Path
    start_s: float
    ends: float
    records: list[Record] = field(default_factory=list)
    again: Counter[tuple[str, int]] = field(default_factory=Counter)

    def hopeless_at(self, client: str) -> int | None:
        """The lowest level at which every trial of `client` was far off or gave nothing; None so far."""
        bad: dict[int, bool] = {}
        for one in self.records:
            if one.client == client and not one.two_cores and not (one.reason or "").startswith(VOID):
                far_off = one.error is None or one.error > HOPELESS
                bad[one.streams] = bad.get(one.streams, True) and far_off
        return min((streams for streams, every in bad.items() if every), default=None)

    def measure(self, client: Client, streams: int, repeat: int, *, two_cores: bool = False) -> None:
        """One trial, or the reason why there is none."""
        stuck = None if two_cores else self.hopeless_at(client.name)
        figures, reason = None, None
        if client.version() is None:
            reason = "not installed"
        elif stuck is not None and streams > stuck and (repeat or streams != SEND_LEVEL):
            reason = f"not run: far off at {stuck} streams"
        elif time.monotonic() > self.ends:
            reason = "not run: out of time"
        else:
            load = trial.Load(
                streams=streams,
                seconds=self.setting.seconds,
                seed=self.setting.seed + repeat,
                server_core=self.setting.server_core,
                client_cores=tuple(self.cores[1:3] if two_cores else self.cores[1:2]),
                start_s=self.start_s,
            )
            try:
                figures = self._quiet(client, load)
            except trial.TrialError as failure:
                reason = str(failure)
        record = Record(
            client=client.name, streams=streams, repeat=repeat, two_cores=two_cores, figures=figures,
            reason=reason,
        )  # fmt: skip
        self.records.append(record)
        print(record.line(), flush=True)

    def _quiet(self, client: Client, load: trial.Load) -> Figures:
        """A trial in which the server was not late; repeated while it was and may be."""
        while True:
            figures = trial.run(client, load, tokenizer=self.tokenizer, lead_s=self.setting.lead_s)
            late_ms = figures.server_late_p99_ms or 0.0
            if late_ms <= VOID_MS:
                return figures
            self.again[client.name, load.streams] += 1
            if self.again[client.name, load.streams] > AGAIN or time.monotonic() > self.ends:
                raise trial.TrialError(f"{VOID}: the server itself was {late_ms:.1f} ms late at p99")
            print(f"{client.name:>20}: the server was {late_ms:.1f} ms late at p99; once more", flush=True)


def ladder(session: Session, clients: Sequence[Client], levels: Sequence[int], repeats: int) -> None:
    """All levels of all clients, then once more where the repeats disagree."""
    for repeat in range(repeats):
        for streams in levels:
            for client in clients:
                if not isinstance(client, Ours) or client.workers is None or streams == SEND_LEVEL:
                    session.measure(client, streams, repeat)
                    write_raw(session.setting, session.records, session.out)
    for streams in levels:
        for client in clients:
            errors = [
                one.error
                for one in session.records
                if one.client == client.name and one.streams == streams and one.error is not None
            ]
            if len({abs(error) <= WITHIN for error in errors}) > 1:
                session.measure(client, streams, repeats)
                write_raw(session.setting, session.records, session.out)


def two_cores(session: Session, client: Client, levels: Sequence[int], repeats: int) -> None:
    """The same client on two cores beside the server's: needs a third."""
    if len(session.cores) < 3:
        return
    for repeat in range(repeats):
        for streams in levels:
            session.measure(client, streams, repeat, two_cores=True)
            write_raw(session.setting, session.records, session.out)


def machine() -> dict[str, str | int]:
    """What the figures depend on."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Replay clients against a server of known truth.")
    parser.add_argument("--all", action="store_true", help="every client, every level, two cores, tables")
    parser.add_argument(
        "--client", action="append", default=[], help="only these: ours, vllm, guidellm, aiperf"
    )
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)), help="streams in flight on average")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of load, lead-in included")
    parser.add_argument("--lead-s", type=float, default=2.0, help="left out at the front of every load")
    parser.add_argument("--start-s", type=float, default=60.0, help="a client may take to start and report")
    parser.add_argument("--budget-min", type=float, default=13.5, help="no trial starts after this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", type=Path, default=Path("/tmp/peers"), help="venv of the peers")  # noqa: S108
    parser.add_argument("--vllm", type=Path, default=ROOT / ".venv-vllm", help="venv with vLLM")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "models" / "smollm2-135m")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of raw.json")
    args = parser.parse_args()
    if not args.all and not args.client:
        parser.error("say --all, or which --client")
    return args


def main() -> int:
    """Measure, write, render."""
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    clients: dict[str, Client] = {
        "ours": Ours(python=Path(sys.executable)),
        "vllm": VllmBench(python=args.vllm / "bin" / "python"),
        "guidellm": Guidellm(python=args.peers / "bin" / "python"),
        "aiperf": Aiperf(python=args.peers / "bin" / "python"),
    }
    chosen = [clients[name] for name in (args.client or clients)]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("one core for the server and one for the client: this machine lets us use only one")
    if args.all:
        chosen.insert(1, Ours(python=Path(sys.executable), workers=2))
    setting = Setting(
        machine=machine(),
        versions={one.name: one.version() for one in chosen},
        seconds=args.seconds,
        lead_s=args.lead_s,
        seed=args.seed,
        server_core=cores[0],
        client_core=cores[1],
    )
    os.sched_setaffinity(0, {cores[0]})  # this process only looks on; the client's core is the client's
    session = Session(
        setting=setting, cores=cores, tokenizer=args.tokenizer.resolve(), out=args.out, start_s=args.start_s,
        ends=time.monotonic() + args.budget_min * 60,
    )  # fmt: skip
    levels = [int(one) for one in args.levels.split(",")]
    ladder(session, chosen, levels, args.repeats)
    if args.all:
        two_cores(session, clients["ours"], levels[-3:], args.repeats)
    write_raw(setting, session.records, args.out)
    render(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The commands and their exit codes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from autotune import __version__
from autotune.cli.workload_commands import workload as workload_app
from autotune.errors import AutotuneError, ExitCode, InputError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Find the serving configuration that carries the most of your recorded traffic inside your SLA.",
)
Json = Annotated[bool, typer.Option("--json", help="Write every event as one JSON line to standard output.")]


@app.command()
def run(  # noqa: PLR0917  typer's way of declaring options
    sla: Annotated[
        list[str] | None,
        typer.Option(metavar="SLO", help="METRIC_pNN=LIMIT, e.g. ttft_p99=500ms; repeatable."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="PATH|ID", help="Model folder or id in the local cache.")
    ] = None,
    workload: Annotated[str | None, typer.Option(metavar="FILE", help="Recorded traffic to replay.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="The engine to tune: vllm.")] = None,
    space: Annotated[
        str | None, typer.Option(metavar="FILE", help="Search space; by default ours for the device.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Run folder; by default runs/DATE-TIME.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wall time for everything, e.g. 15min.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Number of trials, the defaults included.")
    ] = None,
    gpus: Annotated[str | None, typer.Option(metavar="LIST", help="GPU indexes, e.g. 0,1, or none.")] = None,
    engine_python: Annotated[
        str | None, typer.Option(metavar="PATH", help="Python that has vLLM; by default `vllm` on PATH.")
    ] = None,
    quality: Annotated[
        str | None, typer.Option(metavar="GATE", help="perplexity=LIMIT% (default 1%) or off.")
    ] = None,
    at: Annotated[
        float | None, typer.Option(metavar="SPEED", help="Judge at one speed instead of climbing.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of prompts and search (default 0).")
    ] = None,
    ports: Annotated[
        str | None, typer.Option(metavar="LOW-HIGH", help="Ports for engines (8100-8199).")
    ] = None,
    as_json: Json = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be launched, and stop before the first launch."),
    ] = False,
) -> None:
    """Tune: launch, replay, judge, and write tuned.yaml."""
    from autotune.cli.settle import Flags, settle
    from autotune.config import read_config

    flags = Flags(
        sla=tuple(sla or ()),
        model=model,
        workload=workload,
        engine=engine,
        space=space,
        out=out,
        budget=budget,
        trials=trials,
        gpus=gpus,
        engine_python=engine_python,
        quality=quality,
        at=at,
        seed=seed,
        ports=ports,
    )
    settled = settle(flags, read_config(Path.cwd()))
    from autotune.cli.work import dry, start  # half a second that nobody waits for to read of a slip

    raise typer.Exit(dry(settled, as_json=as_json) if dry_run else start(settled, as_json=as_json))


@app.command()
def resume(folder: Annotated[Path, typer.Argument(metavar="DIR")], as_json: Json = False) -> None:
    """Go on with an interrupted run."""
    from autotune.cli.work import go_on

    raise typer.Exit(go_on(folder, as_json=as_json))


@app.command()
def report(folder: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Write a run's files again, and its summary."""
    from autotune.cli.work import rewrite

    raise typer.Exit(rewrite(folder))


@app.command()
def record(  # noqa: PLR0917  typer's way of declaring options
    upstream: Annotated[str, typer.Option(metavar="URL", help="The server to record, http or https.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="A new file for the recording, mode 0600.")],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.")
    ] = "127.0.0.1:8001",
    keep_text: Annotated[
        bool, typer.Option("--keep-text", help="Keep the bodies of requests, text and all.")
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The model's folder or tokenizer.json, for exact prefix blocks."),
    ] = None,
    ask_usage: Annotated[
        bool, typer.Option("--ask-usage", help="Change streamed requests to ask for token counts.")
    ] = False,
    rotate_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Begin a new part at this size, e.g. 100MB.")
    ] = None,
    rotate_every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin a new part after this time, e.g. 1h.")
    ] = None,
    queue: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for what is not written yet; more is dropped.")
    ] = "256MiB",
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long answers under way may take after Ctrl-C.")
    ] = "10s",
) -> None:
    """Record traffic on its way to a server: arrivals, lengths and shared prefixes, not the words.

    Prints the address to point clients at.
    """
    from autotune.cli.recording import Flags as RecordFlags
    from autotune.cli.recording import record as go

    flags = RecordFlags(
        upstream=upstream,
        out=out,
        listen=listen,
        keep_text=keep_text,
        ask_usage=ask_usage,
        tokenizer=tokenizer,
        rotate_size=rotate_size,
        rotate_every=rotate_every,
        queue=queue,
        grace=grace,
    )
    raise typer.Exit(go(flags))


@app.command()
def replay(  # noqa: PLR0917  typer's way of declaring options
    endpoint: Annotated[str, typer.Option(metavar="URL", help="A running OpenAI-compatible server.")],
    workload: Annotated[Path, typer.Option(metavar="FILE", help="Recorded traffic to replay.")],
    sla: Annotated[list[str], typer.Option(metavar="SLO", help="METRIC_pNN=LIMIT; repeatable.")],
    speed: Annotated[float, typer.Option(metavar="SPEED", help="Multiple of the recorded speed.")] = 1.0,
    requests: Annotated[
        int | None, typer.Option(metavar="N", help="Only the first N requests; by default all.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to ask for; by default the first it serves.")
    ] = None,
    key_env: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable that holds the key.")
    ] = "OPENAI_API_KEY",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the prompts.")] = 0,
    vocabulary: Annotated[
        int, typer.Option(metavar="N", help="Token ids of made prompts stay below this.")
    ] = 32_000,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every request's stamps there (Parquet).")
    ] = None,
    natural_stops: Annotated[
        bool,
        typer.Option("--natural-stops", help="Let the model end its answers, at most as long as recorded."),
    ] = False,
    plain_openai: Annotated[
        bool, typer.Option("--plain-openai", help="Leave out vLLM's additions to the protocol.")
    ] = False,
    skip_bad: Annotated[int, typer.Option(metavar="N", help="Tolerate up to N bad rows.")] = 0,
    as_json: Json = False,
) -> None:
    """Replay recorded traffic against a running server and judge it.

    Exits 0 when the objectives hold, else 4.
    """
    from autotune.cli.replaying import Asked, replay_endpoint

    asked = Asked(
        url=endpoint,
        workload=workload,
        sla=tuple(sla),
        speed=speed,
        requests=requests,
        model=model,
        key_env=key_env,
        seed=seed,
        vocabulary=vocabulary,
        out=out,
        natural_stops=natural_stops,
        plain_openai=plain_openai,
        skip_bad=skip_bad,
    )
    raise typer.Exit(replay_endpoint(asked, as_json=as_json))


app.add_typer(workload_app, name="workload")


@app.command()
def doctor(
    engine_python: Annotated[
        str | None, typer.Option(metavar="PATH", help="Python that has vLLM; by default `vllm` on PATH.")
    ] = None,
    gpus: Annotated[str | None, typer.Option(metavar="LIST", help="GPU indexes, e.g. 0,1, or none.")] = None,
    client: Annotated[
        bool, typer.Option("--client", help="Measure our own load generator instead, in a few seconds.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="R", help="Requests/s for --client (default 100, of 64 tokens).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what this machine offers and lacks.

    Exits 0 when a run can start, else 3.
    """
    from autotune.cli.examine import RATE_RPS, examine, examine_client

    if rate is not None and not client:
        raise InputError("--rate says nothing without --client", hint="autotune doctor --client --rate 300")
    if client:
        raise typer.Exit(examine_client(RATE_RPS if rate is None else rate, as_json=as_json))
    raise typer.Exit(examine(engine_python, gpus, as_json=as_json))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keep `--version` beside the commands."""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run the command; every error is one clear line, a hint and a documented exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    try:
        # Not standalone, typer hands back the code of an Exit instead of raising it.
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except typer.TyperException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "autotune")
        return _complain(InputError(error.format_message(), hint=f"see {command} --help"))
    except (typer.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except AutotuneError as error:
        return _complain(error)
    except BrokenPipeError:  # `autotune … | head`: nobody reads on, so it ends here
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.INTERRUPTED
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        print(
            "hint: what was measured so far is in the run folder; autotune resume DIR goes on",
            file=sys.stderr,
        )
        return ExitCode.SETUP
    return code if isinstance(code, int) else ExitCode.FOUND


def _complain(error: AutotuneError) -> int:
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code

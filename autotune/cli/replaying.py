"""`replay`: recorded traffic against a server that somebody else runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from autotune.domain.launch import Endpoint, StartFacts
from autotune.domain.measurement import Judgement
from autotune.domain.slo import Sla
from autotune.domain.workload import Workload
from autotune.errors import ExitCode, InputError, ReplayError, SetupError
from autotune.evaluate.standing import Standing, Stood, replay_standing
from autotune.formats.workloads import gather, open_recording
from autotune.replay import write_timings
from autotune.report.words import counted, objective, percent, plural
from autotune.traffic import Due, cut
from autotune.units import show_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was typed after `autotune replay`."""

    url: str
    workload: Path
    sla: tuple[str, ...]
    speed: float
    requests: int | None
    model: str | None
    key_env: str
    seed: int
    vocabulary: int
    out: Path | None
    natural_stops: bool
    plain_openai: bool
    skip_bad: int


def replay_endpoint(asked: Asked, *, as_json: bool) -> int:
    """Measure and print; 0 when the objectives hold by the point rule, else 4.

    Raises `ReplayError` (exit 5), after printing, when our own client was late.
    """
    sla = Sla.parse(asked.sla)
    if not 0 < asked.speed < 1e6:
        raise InputError(
            f"--speed {asked.speed:g} is not a speed", hint="1 replays the recorded times exactly"
        )
    for name, value in (("--requests", asked.requests), ("--vocabulary", asked.vocabulary)):
        if value is not None and value < 2:
            raise InputError(f"{name} {value} is too small", hint="at least 2")
    opened = open_recording(asked.workload, skip_bad=asked.skip_bad)
    workload = gather(opened)
    for line in opened.source.skipped:
        print(f"left out: {line}", file=sys.stderr)
    if not workload.timed:
        raise InputError(
            f"{asked.workload} holds prompts without arrival times",
            hint="autotune workload convert --rate draws arrivals for them",
        )
    if asked.out is not None and asked.out.exists():
        raise InputError(f"--out {asked.out} exists", hint="name a file that does not")
    due = cut(
        workload.requests,
        first=0,
        end=len(workload.requests),
        speed=asked.speed,
        count=asked.requests or len(workload.requests),
        at_least_s=0.0,
        at_most_s=float("inf"),
        lead_in_s=0.0,
    )
    endpoint, context = discover(asked.url, os.environ.get(asked.key_env, ""), asked.model)
    _refuse_longer(workload, due, context)
    standing = Standing(
        endpoint=endpoint,
        workload=workload,
        due=due,
        sla=sla,
        speed=asked.speed,
        seed=asked.seed,
        vocabulary=asked.vocabulary,
        natural_stops=asked.natural_stops,
        vllm_fields=not asked.plain_openai,
    )
    stood = _watch(standing)
    if asked.out is not None:
        write_timings(stood.timings, asked.out)
    if as_json:
        body = {
            "endpoint": endpoint.url,
            "model": endpoint.model,
            "workload": workload.source,
            "sha256": workload.sha256,
            "holds": stood.held,
            "measurement": stood.measurement,
            "verdict": stood.verdict,
            "exact_prompts": stood.exact_prompts,
            "exact_outputs": stood.exact_outputs,
            "prefix_share": stood.prefix_share,
            "void": stood.void,
        }
        sys.stdout.write(msgspec.json.encode(body).decode() + "\n")
    else:
        _print(standing, stood)
    if stood.void is not None:
        raise ReplayError(
            f"this replay proves nothing: {stood.void}",
            hint="stop other programs here, replay slower, or send from another machine",
        )
    return ExitCode.FOUND if stood.held else ExitCode.INFEASIBLE


class _Card(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


def discover(url: str, key: str, model: str | None) -> tuple[Endpoint, int | None]:
    """The server at `url`, the model to ask for, and its context in tokens where the server says it.

    Raises `InputError` for a URL or a model that cannot be meant, `SetupError` when nothing answers.
    """
    base = url.rstrip("/").removesuffix("/v1")
    try:
        answer = httpx.get(
            f"{base}/v1/models",
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=10.0,
            trust_env=False,
        )
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError) as error:
        raise InputError(
            f"--endpoint {url!r} is no URL: {error}", hint="for example http://127.0.0.1:8000"
        ) from error
    except httpx.HTTPError as error:
        raise SetupError(f"nothing answers at {base}: {error}", hint="is the server up?") from error
    if answer.status_code in {401, 403}:
        raise InputError(
            f"{base} refuses our key: HTTP {answer.status_code}",
            hint="put the key into OPENAI_API_KEY, or name another variable with --key-env",
        )
    try:
        cards = msgspec.json.decode(answer.content, type=_Cards).data
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{base}/v1/models answers HTTP {answer.status_code}, and no list of models",
            hint="--endpoint needs an OpenAI-compatible server",
        ) from error
    names = [card.id for card in cards]
    chosen = next((card for card in cards if model in {None, card.id}), None)
    if chosen is None:
        raise InputError(f"no model {model!r} at {base}", hint=f"it serves {', '.join(names) or 'none'}")
    facts = StartFacts(start_s=0.0)
    return Endpoint(url=base, key=key, model=chosen.id, facts=facts), chosen.max_model_len


def _refuse_longer(workload: Workload, due: tuple[Due, ...], context: int | None) -> None:
    """Raise `InputError` when the server's context does not hold every request."""
    sizes = [one.request.prompt_tokens + one.request.output_tokens for one in due]
    longer = sum(size > context for size in sizes) if context is not None else 0
    if longer:
        raise InputError(
            f"{longer:,} of {len(sizes):,} requests of {workload.source} are longer than the server's "
            f"context of {context:,} tokens (the longest has {max(sizes):,})",
            hint="serve a longer context, or shrink them: autotune workload scale --lengths",
        )


def _watch(standing: Standing) -> Stood:
    """Replay with a bar on a terminal."""
    console = Console(stderr=True, highlight=False)
    planned = sum(one.measured for one in standing.due)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} done, {task.fields[bad]} bad"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("replay", total=planned, bad=0)
        steps = replay_standing(standing)
        while True:
            try:
                frame = next(steps)
            except StopIteration as ended:
                stood: Stood = ended.value
                return stood
            bar.update(task, completed=frame.finished, bad=frame.bad)


def _print(standing: Standing, stood: Stood) -> None:
    measurement, done = stood.measurement, stood.measurement.finished
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())

    def say(text: str) -> None:
        console.print(text, markup=False)

    say(
        f"traffic  {Path(standing.workload.source).name}, {plural(measurement.sent, 'request')} at "
        f"{standing.speed:g} × the recorded speed: {measurement.rate_rps:.3g} req/s offered, "
        f"{measurement.served_rps:.3g} served, {measurement.output_tokens_per_s:.4g} tokens/s"
    )
    say(f"server   {standing.endpoint.model} at {standing.endpoint.url}")
    if measurement.quantiles:
        say(f"{'':9}{'n':>8}{'p50':>10}{'p90':>10}{'p99':>10}")
    for name, found in measurement.quantiles.items():
        cells = "".join(f"{show_duration(value):>10}" for value in (found.p50_s, found.p90_s, found.p99_s))
        say(f"{name:<9}{found.n:>8,}{cells}")
    for error, count in measurement.errors.items():
        say(f"failed   {plural(count, 'request')}: {error}")
    for judgement in stood.verdict.judgements:
        say(f"verdict  {_judged(judgement, measurement.rate_rps)}")
    prompts = f"{stood.exact_prompts:,} of {done:,} prompts and " if stood.exact_prompts else ""
    say(f"lengths  {prompts}{stood.exact_outputs:,} of {done:,} answers exactly as recorded")
    if stood.prefix_share is not None:
        say(f"prefix   {percent(stood.prefix_share)} of the prompt tokens came from the prefix cache")
    if measurement.send_lag_p99_s is not None:
        lag_ms = measurement.send_lag_p99_s * 1e3
        say(f"client   99 % of the requests left within {lag_ms:.2f} ms of their time")


def _judged(judgement: Judgement, rate_rps: float) -> str:
    """'ttft_p99 ≤ 500 ms: 1 bad of 400 requests, at most 2.3 % at 95 %: UNDECIDED, …'."""
    more = ""
    if judgement.needed and rate_rps:
        wait = show_duration(judgement.needed / rate_rps)
        more = f", {plural(judgement.needed, 'more request')} would decide (about {wait} at this rate)"
    share = f"{percent(judgement.lower_share)} to {percent(judgement.upper_share)} (95 %)"
    return (
        f"{objective(judgement.count.slo)}: {counted(judgement.count)}, a share of {share}: "
        f"{judgement.state.value}{more}"
    )

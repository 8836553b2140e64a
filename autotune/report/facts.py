"""Figures at the top, where they come from, and what the words mean."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.domain.outcome import Faulted, Infeasible, Measured, Result, Stopped, Trial
from autotune.domain.run import Run
from autotune.domain.slo import Metric
from autotune.report.marks import Role
from autotune.report.proof import Proof
from autotune.report.table import quality_of
from autotune.report.windows import highest_held
from autotune.report.words import allowed, listed, plural, promise, rates, speeds, three
from autotune.units import show_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A label, what it says, and the n, the bracket or the source behind it; `role` gives it a colour."""

    label: str
    text: str
    note: str = ""
    role: Role | None = None


def figures(
    run: Run, result: Result, tuned: Trial | None, default: Trial | None, proven: Proof
) -> tuple[Fact, ...]:
    """The figures at the top, each with what it rests on."""
    facts = [
        _capacity_fact(run, role, trial)
        for role, trial in ((Role.TUNED, tuned), (Role.DEFAULT, default))
        if trial is not None
    ]
    if proven.confirmed_rps is not None:
        facts.append(
            Fact(
                label="Confirmed",
                text=f"{three(proven.confirmed_rps)} req/s",
                note=f"PASS at {proven.confidence} on held-out traffic: {proven.confirmed_note}",
            )
        )
    quality = quality_of(tuned)
    if quality is not None:
        facts.append(
            Fact(
                label="Perplexity",
                text=f"{quality.increase * 100:+.2f} %",
                note=f"{quality.perplexity:.2f} against {quality.reference:.2f},"
                f" n = {quality.tokens:,} tokens; {_gate(run)}",
            )
        )
    tried = plural(len(result.trials), "trial")
    facts.append(Fact(label="The run", text=show_duration(result.seconds), note=tried))
    return tuple(facts)


def _capacity_fact(run: Run, role: Role, trial: Trial) -> Fact:
    label = f"{role.value.capitalize()} capacity"
    match trial.outcome:
        case Measured(capacity=capacity, windows=windows):
            held = highest_held(trial)
            served = capacity.output_tokens_per_s
            parts = [
                f"{speeds(capacity)} in the search",
                "" if served is None else f"{three(served)} output tokens/s",
                "" if held is None else f"n = {plural(held.measurement.sent, 'request')} in its best window",
            ]
            text = rates(capacity)
            if run.load.at is not None:
                text = "held" if capacity.low_speed is not None else "not held"
                parts[0] = f"at {run.load.at:g} × recorded"
            note = "; ".join(part for part in parts if part) or plural(len(windows), "window")
            return Fact(label=label, text=text, note=note, role=role)
        case Infeasible(cause=cause, evidence=evidence):
            return Fact(label=label, text=cause.value, note=evidence, role=role)
        case Stopped(reason=reason) | Faulted(reason=reason):
            return Fact(label=label, text="not measured", note=reason, role=role)


def _gate(run: Run) -> str:
    return "off" if run.quality_limit is None else f"perplexity at most {run.quality_limit * 100:g} % higher"


def environment(run: Run, result: Result) -> tuple[Fact, ...]:
    """All that the figures depend on, enough to ask for the same run again."""
    quantization = f", {run.model.quantization}" if run.model.quantization else ""
    parameters = "" if run.model.parameters is None else f", {three(run.model.parameters / 1e9)} B parameters"
    driver = "" if run.hardware.driver is None else f"driver {run.hardware.driver}"
    limits = [
        "" if run.trials is None else plural(run.trials, "trial"),
        "" if run.budget_s is None else show_duration(run.budget_s),
    ]
    return (
        Fact(label="Model", text=run.model.name, note=f"{run.model.dtype}{quantization}{parameters}"),
        Fact(label="Engine", text=f"{run.engine.name} {run.engine.version}", note=f"on {run.engine.device}"),
        Fact(label="Hardware", text=str(run.hardware), note=driver),
        Fact(
            label="Workload",
            text=run.workload_path.replace("\\", "/").rpartition("/")[2],
            note=f"{plural(run.workload_requests, 'request')} recorded at"
            f" {three(run.workload_rate_rps)} req/s; sha256 {run.workload_sha256[:12]}",
        ),
        Fact(
            label="Held out",
            text=f"the last {plural(run.workload_requests - run.holdout, 'request')}",
            note=f"recorded at {three(run.held_rate_rps)} req/s and kept for the confirmation; the search"
            f" replays what came before, recorded at {three(run.search_rate_rps)} req/s",
        ),
        Fact(label="SLA", text=promise(run.sla)),
        Fact(label="Quality gate", text=_gate(run)),
        Fact(
            label="Search space",
            text=run.space.name,
            note=plural(len(run.space.parameters), "parameter"),
        ),
        Fact(
            label="Budget",
            text=" or ".join(part for part in limits if part) or "none",
            note=f"used {show_duration(result.seconds)}; ended: {result.reason}",
        ),
        *_client(result),
        Fact(label="Seed", text=str(run.seed)),
        Fact(label="Run", text=run.id, note=run.created_at),
        Fact(label="Tool", text=f"autotune {run.tool_version}"),
    )


def _client(result: Result) -> tuple[Fact, ...]:
    """What our own client adds, where it was tested."""
    own = result.client
    if own is None:
        return ()
    text = f"off by {show_duration(own.ttft_error_s)} at TTFT p99"
    note = (
        f"against a built-in server of known timing: {three(own.rate_rps)} requests/s, "
        f"{own.events_per_s:,.0f} token events/s; at p99 requests reach it "
        f"{show_duration(own.send_error_p99_s)} after their due time"
    )
    return (Fact(label="Our client", text=text, note=note),)


_METRICS = {
    Metric.TTFT: "from when a request was due to its first token. A late send counts against the engine's"
    " figure and cannot hide a stall.",
    Metric.ITL: "every gap between two arrivals of a stream, pooled over all requests.",
    Metric.TPOT: "time from first to last token, divided by the tokens after the first.",
    Metric.E2EL: "from when a request was due to its last token.",
}


def method(run: Run) -> tuple[Fact, ...]:
    """The words of the page, defined."""
    metrics = dict.fromkeys(slo.metric for slo in run.sla.slos)
    metrics.setdefault(Metric.TTFT)
    shares = dict.fromkeys((allowed(slo), f"p{slo.percentile:g}") for slo in run.sla.slos)
    share = listed(f"{part} (for a {name})" if len(shares) > 1 else part for part, name in shares)
    return (
        *(Fact(label=metric.name, text=_METRICS[metric]) for metric in metrics),
        Fact(
            label="Bad request",
            text="over the limit, failed, refused, or still waiting past the limit when the window ended."
            f" {promise(run.sla)} means: at most {share} of the requests are bad.",
        ),
        Fact(
            label="Request rate",
            text="the speed, as a multiple of recorded, times the mean recorded rate of the slice replayed:"
            f" {three(run.search_rate_rps)} req/s in the search, {three(run.held_rate_rps)} req/s held out."
            " What one window is really offered is more or less, as its part of the slice is busy or quiet.",
        ),
        Fact(
            label="Capacity",
            text="the highest rate whose window held every objective while the recorded gaps between"
            " sessions were shortened. The bracket ends at the lowest rate that did not hold.",
        ),
        Fact(
            label="Point rule",
            text=f"a search window holds when its own share of bad requests is at most {share}. Cheap,"
            " good for ranking; not a proof.",
        ),
        Fact(
            label="Bound rule",
            text=f"a confirmation passes when the one-sided {run.confidence * 100:g} % Clopper-Pearson upper"
            f" bound of the share is at most {share}, and fails when the lower bound is above it;"
            " in between it is undecided.",
        ),
        Fact(
            label="Design effect",
            text=f"bad requests come in bursts, so n and the bad count are divided by {run.design_effect:g}"
            " before the bound is taken.",
        ),
        Fact(
            label="Window",
            text=f"at least {plural(run.load.window_requests, 'request')} and "
            f"{show_duration(run.load.window_s)}, after {show_duration(run.load.lead_in_s)} of unmeasured "
            "lead-in, sent when due whether or not earlier ones were answered.",
        ),
    )

"""The answer in one sentence, and the sentences that keep it honest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from autotune.domain.outcome import Faulted, Infeasible, Measured, Result, Stopped, Trial
from autotune.domain.run import Run
from autotune.report.table import low_rps
from autotune.report.windows import (
    by_number,
    challenger,
    confirmation_of,
    count_of,
    highest_held,
    lowest_rate_rps,
    windows_of,
)
from autotune.report.words import Ratio, listed, plural, promise, rates, three
from autotune.units import show_duration


class Tone(Enum):
    """How the sentence is coloured."""

    GAIN = "gain"
    KEEP = "keep"
    NOTHING = "nothing"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The sentence, and what it leaves out."""

    tone: Tone
    sentence: str
    details: tuple[str, ...]


def headline(run: Run, result: Result) -> Headline:
    """What the trials and their confirmations say about `run.sla`."""
    best = by_number(result.trials, result.winner)
    if best is None:
        return _nothing(run, result.trials, result.reason)
    if best.number == 0:
        return _keep(run, result, best)
    default = by_number(result.trials, 0)
    said = _gain_at(run, best, default) if run.load.at is not None else _gain(run, best, default)
    own = confirmation_of(result, best.number)
    if own is None or own.speed is not None:
        return said
    return Headline(
        tone=Tone.OPEN,
        sentence=f"Not settled: trial {best.number} held {promise(run.sla)} in the search,"
        " but not on traffic the search had not seen",
        details=(f"In the search: {said.sentence[:1].lower()}{said.sentence[1:]}.", *said.details),
    )


def tally(trials: tuple[Trial, ...]) -> str:
    """'24 trials: 19 measured, 4 infeasible (3 out of memory and 1 quality gate) and 1 stopped'."""
    causes = Counter(t.outcome.cause.value for t in trials if isinstance(t.outcome, Infeasible))
    why = f" ({listed(f'{n} {cause}' for cause, n in causes.items())})" if causes else ""
    kinds = [
        (sum(isinstance(trial.outcome, Measured) for trial in trials), "measured"),
        (causes.total(), f"infeasible{why}"),
        (sum(isinstance(trial.outcome, Stopped) for trial in trials), "stopped by the budget"),
        (sum(isinstance(trial.outcome, Faulted) for trial in trials), "faulted"),
    ]
    parts = [f"{count} {kind}" for count, kind in kinds if count]
    return plural(len(trials), "trial") + (f": {listed(parts)}" if parts else "")


def _nothing(run: Run, trials: tuple[Trial, ...], reason: str) -> Headline:
    if not any(isinstance(trial.outcome, Measured | Infeasible) for trial in trials):
        return Headline(
            tone=Tone.OPEN,
            sentence="No answer: the run ended before a trial was measured",
            details=(f"{tally(trials)}.", f"The run ended: {reason}."),
        )
    lowest = lowest_rate_rps(tuple(window for trial in trials for window in windows_of(trial)))
    tried = (
        "No trial got as far as taking a request."
        if lowest is None
        else f"The lowest rate tried was {three(lowest)} req/s"
        f" ({three(lowest / run.workload_rate_rps)} × recorded)."
    )
    return Headline(
        tone=Tone.NOTHING,
        sentence=f"Nothing tried holds {promise(run.sla)}{_at(run)}",
        details=(tried, f"{tally(trials)}."),
    )


def _keep(run: Run, result: Result, default: Trial) -> Headline:
    sla, others, lost = promise(run.sla), len(result.trials) - 1, challenger(result)
    if lost is not None:
        did = "did not hold" if lost.speed is None else "carried no more"
        why = f"trial {lost.trial} led the search, but {did} on traffic the search had not seen"
    elif others == 0:
        why = "no other settings were tried"
    elif run.load.at is not None:
        why = f"they hold {sla}{_at(run)}, and nothing tried has clearly more to spare"
    else:
        why = f"nothing tried carries clearly more inside {sla}"
    tried = (f"{plural(others, 'other configuration')} tried.",) if others else ()
    details = (*_tails("default", default, run), *tried) if run.load.at is not None else tried
    return Headline(tone=Tone.KEEP, sentence=f"Keep the defaults: {why}", details=details)


def _gain(run: Run, best: Trial, default: Trial | None) -> Headline:
    """The gain over the defaults, as far as both brackets allow to say."""
    sla = promise(run.sla)
    tuned = _measured(best).capacity
    holds = f"Tuned settings hold {sla} at {rates(tuned)}"
    if default is None or not isinstance(default.outcome, Measured):
        return Headline(tone=Tone.GAIN, sentence=f"{holds}; {_absent(default)}", details=())
    details = []
    ratio = Ratio.of(tuned, default.outcome.capacity)
    if ratio is None:
        lowest = lowest_rate_rps(default.outcome.windows)
        tried = "" if lowest is None else f" (lowest: {three(lowest)} req/s)"
        text = f"{holds}; the defaults hold it at no rate tried{tried}"
    elif ratio.low is None:
        text = f"{holds}; the defaults met no failing rate, so the gain is open"
        details.append(f"The highest rates that held are {ratio.point_text()} apart: {_held(best, default)}.")
    elif ratio.high is None:
        text = f"Tuned settings carry at least {ratio.low_text()}× the traffic of the defaults inside {sla}"
        details.append(
            "No rate tried was too high for the tuned settings, so the gain has no upper end."
            f" The highest rates that held are {ratio.point_text()} apart: {_held(best, default)}."
        )
    else:
        text = f"Tuned settings carry {ratio} the traffic of the defaults inside {sla}"
        details.append(
            f"{ratio.point_text()} compares the highest rates that held, {_held(best, default)};"
            " the brackets behind them allow anything"
            f" from {ratio.low_text()}× to {ratio.high_text()}×."
        )
    if ratio is not None and ratio.low is not None and ratio.low <= 1:
        details.append("The interval includes 1: the brackets alone do not show a gain.")
    return Headline(tone=Tone.GAIN, sentence=text, details=tuple(details))


def _gain_at(run: Run, best: Trial, default: Trial | None) -> Headline:
    """At a fixed speed there is no ratio of capacities: either the defaults hold too, or they do not."""
    holds = f"Tuned settings hold {promise(run.sla)}{_at(run)}"
    if default is None or not isinstance(default.outcome, Measured):
        return Headline(tone=Tone.GAIN, sentence=f"{holds}; {_absent(default)}", details=())
    held = default.outcome.capacity.low_speed is not None
    text = f"{holds}; the defaults {'hold it too, with less to spare' if held else 'do not'}"
    return Headline(
        tone=Tone.GAIN,
        sentence=text,
        details=(*_tails("tuned", best, run), *_tails("default", default, run)),
    )


def _tails(who: str, trial: Trial, run: Run) -> tuple[str, ...]:
    """Each objective's percentile in the trial's window, with its n."""
    window = highest_held(trial) or next(iter(windows_of(trial)), None)
    if window is None:
        return ()
    counts = [(slo, count) for slo in run.sla.slos if (count := count_of(window, slo)) is not None]
    said = [
        f"{slo.key} {'has no value' if count.value_s is None else show_duration(count.value_s)}"
        f" (n = {count.n:,}, {count.bad:,} bad)"
        for slo, count in counts
    ]
    return (f"The {who} settings (trial {trial.number}): {listed(said)}.",) if said else ()


def _at(run: Run) -> str:
    if run.load.at is None:
        return ""
    return f" at {run.load.at:g} × recorded ({three(run.load.at * run.workload_rate_rps)} req/s)"


def _measured(trial: Trial) -> Measured:
    if not isinstance(trial.outcome, Measured):
        raise TypeError(f"trial {trial.number} is said to have won, yet it was not measured")
    return trial.outcome


def _absent(default: Trial | None) -> str:
    match None if default is None else default.outcome:
        case Infeasible(cause=cause):
            return f"the defaults cannot be used here ({cause.value})"
        case Stopped(reason=reason) | Faulted(reason=reason):
            return f"the defaults were not measured ({reason})"
        case _:
            return "the defaults were not measured"


def _held(best: Trial, default: Trial) -> str:
    """'18.4 against 8.20 req/s'."""
    tuned, usual = low_rps(best), low_rps(default)
    if tuned is None or usual is None:
        raise TypeError("a ratio needs two trials that held the SLA")
    return f"{three(tuned)} against {three(usual)} req/s"

"""The answer in one sentence, and the sentences that keep it honest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from autotune.domain.outcome import (
    Confirmation,
    Faulted,
    Infeasible,
    Measured,
    Result,
    Stopped,
    Trial,
    Window,
)
from autotune.domain.run import Run
from autotune.report.gain import HELD_OUT, SEARCH_ONLY, Gain, gain, pair
from autotune.report.windows import (
    by_number,
    challenger,
    confirmation_of,
    fixed_window,
    highest_held,
    lowest,
    rate_rps,
    windows_of,
)
from autotune.report.words import (
    Ratio,
    counted,
    listed,
    percentile,
    plural,
    promise,
    rates,
    three,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The sentence, and what it leaves out."""

    sentence: str
    details: tuple[str, ...]


def headline(run: Run, result: Result) -> Headline:
    """What the trials and their confirmations say about `run.sla`."""
    best = by_number(result.trials, result.winner)
    if best is None:
        lost = challenger(result) or confirmation_of(result, 0)
        return _nothing(run, result) if lost is None else _not_again(run, result, lost)
    if best.number == 0:
        return _keep(run, result, best)
    return _gain_at(run, result, best) if run.load.at is not None else _gain(run, result, best)


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


def _nothing(run: Run, result: Result) -> Headline:
    trials = result.trials
    if not any(isinstance(trial.outcome, Measured | Infeasible) for trial in trials):
        return Headline(
            sentence="No answer: the run ended before a trial was measured",
            details=(f"{tally(trials)}.", f"The run ended: {result.reason}."),
        )
    slowest = lowest(tuple(window for trial in trials for window in windows_of(trial)))
    tried = (
        "No trial got as far as taking a request."
        if slowest is None
        else f"The lowest rate tried was {_rate(run, slowest)}."
    )
    return Headline(
        sentence=f"Nothing tried holds {promise(run.sla)}{_at(run)}",
        details=(tried, f"{tally(trials)}."),
    )


def _not_again(run: Run, result: Result, lost: Confirmation) -> Headline:
    """Something held in the search: it is not true that nothing does, but nothing may be claimed either."""
    who = "the engine's defaults" if lost.default else f"trial {lost.trial}"
    trial = by_number(result.trials, lost.trial)
    held = None if trial is None else highest_held(trial)
    search = () if held is None else (f"In the search the highest rate that held was {_rate(run, held)}.",)
    return Headline(
        sentence=f"The best attainable, {who}, did not hold {promise(run.sla)} {HELD_OUT}",
        details=(*search, _again(run, lost), f"{tally(result.trials)}."),
    )


def _keep(run: Run, result: Result, default: Trial) -> Headline:
    sla, lost, own = promise(run.sla), challenger(result), confirmation_of(result, 0)
    others = result.trials[1:]
    judged = sum(isinstance(trial.outcome, Measured | Infeasible) for trial in others)
    if lost is not None:
        more = "had no more to spare" if run.load.at is not None else "carried no more"
        did = "did not hold" if lost.speed is None else more
        why = f"trial {lost.trial} led the search, but {did} {HELD_OUT}"
    elif not others:
        why = "no other settings were tried"
    elif not judged:
        why = "no other configuration was judged"
    elif run.load.at is not None:
        where = " in the search" if own is not None and own.speed is None else ""
        why = f"they hold {sla}{_at(run)}{where}, and nothing tried has clearly more to spare"
    else:
        why = f"nothing tried carries clearly more inside {sla}"
    details = _tails("default", fixed_window(default), run, held_out=False)
    if own is not None:
        details = (*details, _again(run, own))
    if others:
        short = "" if judged == len(others) else f", {judged} judged"
        details = (*details, f"{plural(len(others), 'other configuration')} tried{short}.")
    return Headline(sentence=f"Keep the defaults: {why}", details=details)


def _gain(run: Run, result: Result, best: Trial) -> Headline:
    """The gain over the defaults, as far as both brackets allow to say."""
    sla, default, found = promise(run.sla), by_number(result.trials, 0), gain(run, result)
    holds = f"Tuned settings hold {sla} at {_claimed(run, result, best)}"
    if default is None or not isinstance(default.outcome, Measured):
        return Headline(sentence=f"{holds}; {_absent(default)}", details=())
    if found is None:
        slowest = lowest(default.outcome.windows)
        tried = "" if slowest is None else f" (lowest: {three(rate_rps(run, slowest))} req/s)"
        return Headline(sentence=f"{holds}; the defaults hold it at no rate tried{tried}", details=())
    ratio = found.ratio
    if found.held_out:
        text = f"Tuned settings carry {ratio} the traffic of the defaults inside {sla} {HELD_OUT}"
    elif ratio.low is None:
        text = f"{holds}; the defaults met no failing rate, so the gain is open"
    elif ratio.high is None:
        text = (
            f"Tuned settings carry at least {ratio.low_text()}× the traffic of the defaults inside {sla}"
            f" ({SEARCH_ONLY})"
        )
    else:
        text = f"Tuned settings carry {ratio} the traffic of the defaults inside {sla} ({SEARCH_ONLY})"
    details = [_comparison(found)]
    if ratio.low is not None and ratio.low < 1:
        details.append("The interval includes 1: the brackets alone do not show a gain.")
    if found.held_out and found.search is not None:
        details.append(f"Search: {found.search} the traffic of the defaults.")
    usual = confirmation_of(result, 0)
    if not found.held_out and usual is not None:
        details.append(_again(run, usual))
    return Headline(sentence=text, details=tuple(details))


def _comparison(found: Gain) -> str:
    """What the ratio compares, and what its brackets leave open."""
    ratio, tuned, usual = found.ratio, found.tuned.low_rps, found.default.low_rps
    if tuned is None or usual is None:
        raise TypeError("a ratio needs two trials that held the SLA")
    where = f" {HELD_OUT}" if found.held_out else ""
    both = f"{three(tuned)} against {three(usual)} req/s"
    text = f"{ratio.point_text()} compares the highest rates that held{where}, {both}"
    return text + _ends(ratio)


def _ends(ratio: Ratio) -> str:
    if ratio.low is not None and ratio.high is not None:
        return f"; the brackets behind them allow anything from {ratio.low_text()}× to {ratio.high_text()}×."
    names = (("the tuned settings", "upper", ratio.high), ("the defaults", "lower", ratio.low))
    return "." + "".join(
        f" No rate tried was too high for {who}, so the gain has no {end} end."
        for who, end, value in names
        if value is None
    )


def _gain_at(run: Run, result: Result, best: Trial) -> Headline:
    """At a fixed speed there is no ratio of capacities: either the defaults hold too, or they do not."""
    default, shown = by_number(result.trials, 0), pair(result)
    holds = f"Tuned settings hold {promise(run.sla)} at {_claimed(run, result, best)}"
    if default is None or not isinstance(default.outcome, Measured):
        return Headline(sentence=f"{holds}; {_absent(default)}", details=())
    held = shown.default is not None and shown.default.passed
    does = "the defaults hold it too, with less to spare" if held else "the defaults do not"
    if not shown.held_out and confirmation_of(result, best.number) is not None:
        does = f"in the search {does}"
    return Headline(
        sentence=f"{holds}; {does}",
        details=(
            *_tails("tuned", shown.tuned, run, held_out=shown.held_out),
            *_tails("default", shown.default, run, held_out=shown.held_out),
        ),
    )


def _tails(who: str, window: Window | None, run: Run, *, held_out: bool) -> tuple[str, ...]:
    """Each objective's percentile in a trial's window, with its n; nothing unless the speed is fixed."""
    if window is None or run.load.at is None or not window.measurement.counts:
        return ()
    said = listed(f"{percentile(one)} ({counted(one)})" for one in window.measurement.counts)
    where = HELD_OUT if held_out else "in the search"
    return (f"The {who} settings {where}: {said}.",)


def _claimed(run: Run, result: Result, best: Trial) -> str:
    """The rate that may be said of the tuned settings: the confirmed one, else what the search found."""
    own = confirmation_of(result, best.number)
    if own is not None and own.speed is not None:
        return f"{_rate(run, own.windows[-1])} {HELD_OUT}"
    found = _measured(best).capacity
    if run.load.at is None:
        return f"{rates(found)} ({SEARCH_ONLY})"
    return f"{run.load.at:g} × recorded ({three(run.load.at * run.search_rate_rps)} req/s; {SEARCH_ONLY})"


def _again(run: Run, confirmation: Confirmation) -> str:
    """What a confirmation showed, in a sentence of its own."""
    who = "the defaults" if confirmation.default else f"trial {confirmation.trial}"
    slowest = lowest(confirmation.windows)
    if slowest is None:
        raise TypeError("a confirmation without windows shows nothing")
    if confirmation.speed is None:
        return f"{HELD_OUT.capitalize()} {who} held at no rate tried; the lowest was {_rate(run, slowest)}."
    return f"{HELD_OUT.capitalize()} {who} held at {_rate(run, slowest)}."


def _rate(run: Run, window: Window) -> str:
    """'8.40 req/s (4.20 × recorded)'; at a fixed speed, which the user gave, '1 × recorded (2.00 req/s)'."""
    rate = f"{three(rate_rps(run, window))} req/s"
    if run.load.at is None:
        return f"{rate} ({three(window.speed)} × recorded)"
    return f"{window.speed:g} × recorded ({rate})"


def _at(run: Run) -> str:
    if run.load.at is None:
        return ""
    return f" at {run.load.at:g} × recorded ({three(run.load.at * run.search_rate_rps)} req/s)"


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

"""What the confirmations prove, what they do not, and how many requests a proof would need."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.domain.measurement import Judgement, State
from autotune.domain.outcome import Confirmation, Result, Window
from autotune.domain.run import Run
from autotune.report.windows import confirmation_of, rate_rps
from autotune.report.words import allowed, counted, listed, objective, percent, plural, three

_CAVEAT = (
    "Search windows use the point rule: the share of bad requests seen in the window is within what the"
    " objective allows (1 % for a p99). That is enough to rank settings and to bracket a capacity; it proves"
    " nothing about requests to come. A proof uses the bound rule, which also asks how many requests the"
    " share rests on, after n and the bad count are divided by a design effect of {effect:g} because bad"
    " requests come in bursts."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRow:
    """One objective of one window, judged by the bound. `needed` is worded, empty when nothing is missing."""

    subject: str
    rate: str
    objective: str
    state: State
    bad: str
    share: str
    needed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`state` and `summary` of the winner's confirmation, None when there was none; rows of evidence."""

    state: State | None
    summary: str
    confidence: str
    sentences: tuple[str, ...]
    caveat: str
    rows: tuple[ProofRow, ...]
    confirmed_rps: float | None
    confirmed_note: str | None


def proof(run: Run, result: Result, search: Window | None) -> Proof:
    """Word the confirmations; `search` is the winner's highest window that held, shown beside them."""
    own = confirmation_of(result, result.winner)
    rows = [
        row
        for one in result.confirmations
        for attempt, window in enumerate(one.windows, start=1)
        for row in _rows(run, f"{_name(one, result.winner)}, attempt {attempt}", window)
    ]
    if search is not None:
        rows.extend(_rows(run, f"Search, trial {result.winner} (point rule)", search))
    sentences = [_sentence(run, one, result.winner) for one in result.confirmations]
    if not any(one.trial == result.winner for one in result.confirmations) and result.winner is not None:
        sentences.insert(0, "The winner was not confirmed: its figures rest on search windows alone.")
    last = own.windows[-1] if own is not None else None
    proven = last is not None and last.verdict.state is State.PASS
    return Proof(
        state=None if last is None else last.verdict.state,
        summary="the figures rest on search windows alone"
        if last is None
        else f"{_where(run, last)}: {counted(_decisive(last).count)}",
        confidence=f"{run.confidence * 100:g} %",
        sentences=tuple(sentences),
        caveat=_CAVEAT.format(effect=run.design_effect),
        rows=tuple(rows),
        confirmed_rps=own.rate_rps if own is not None and proven else None,
        confirmed_note=counted(_decisive(last).count) if last is not None else None,
    )


def _name(confirmation: Confirmation, winner: int | None) -> str:
    if confirmation.default:
        return "Defaults"
    tuned = f"trial {confirmation.trial}"
    return f"Tuned settings ({tuned})" if confirmation.trial == winner else tuned.capitalize()


def _rate(run: Run, window: Window) -> str:
    return f"{three(rate_rps(run, window))} req/s ({three(window.speed)} × recorded)"


def _where(run: Run, window: Window) -> str:
    return f"at {_rate(run, window)}, on a fresh launch and held-out traffic"


def _decisive(window: Window) -> Judgement:
    """The objective that decides: the worst state, then the least margin."""
    order = (State.FAIL, State.UNDECIDED, State.PASS)
    return min(window.verdict.judgements, key=lambda one: (order.index(one.state), one.margin))


def _needed(judgement: Judgement) -> str:
    if judgement.state is not State.UNDECIDED:
        return ""
    if judgement.needed is None:
        return "no number at this share"
    return f"{judgement.needed:,} more requests"


def _rows(run: Run, subject: str, window: Window) -> tuple[ProofRow, ...]:
    curtailed = ", stopped early" if window.measurement.curtailed else ""
    return tuple(
        ProofRow(
            subject=subject,
            rate=_rate(run, window),
            objective=objective(one.count.slo),
            state=one.state,
            bad=f"{counted(one.count)}{curtailed}",
            share=f"{_seen(one)} [{percent(one.lower_share)}, {percent(one.upper_share)}],"
            f" {allowed(one.count.slo)} allowed",
            needed=_needed(one),
        )
        for one in window.verdict.judgements
    )


def _seen(judgement: Judgement) -> str:
    count = judgement.count
    return "nothing seen" if count.n == 0 else percent(count.bad / count.n)


def _sentence(run: Run, confirmation: Confirmation, winner: int | None) -> str:
    name = _name(confirmation, winner)
    note = (
        f" {confirmation.note[:1].upper()}{confirmation.note[1:].rstrip('.')}." if confirmation.note else ""
    )
    attempts = len(confirmation.windows)
    if attempts > 1:
        note += f" This was attempt {attempts}, slower than those before; each was judged on its own."
    if not confirmation.windows:
        return f"{name}: not confirmed.{note}"
    window = confirmation.windows[-1]
    judgement = _decisive(window)
    confidence = f"{window.verdict.confidence * 100:g} %"
    where, bad = _where(run, window), counted(judgement.count)
    match window.verdict.state:
        case State.PASS:
            slos = listed(objective(one.count.slo) for one in window.verdict.judgements)
            text = f"proven at {confidence} to hold {slos} {where}: {bad}."
        case State.FAIL:
            text = f"shown at {confidence} to miss {objective(judgement.count.slo)} {where}: {bad}."
        case State.UNDECIDED:
            held = "held by the point rule, but not proven" if window.passed else "neither proven nor refuted"
            text = f"{held} at {confidence} {where}: {bad}. " + (
                "At the share seen no number of requests would prove it."
                if judgement.needed is None
                else f"At the share seen, {plural(judgement.needed, 'more request')} would prove it."
            )
    return f"{name}: {text}{note}"

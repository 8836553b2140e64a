"""What all workers of a window have told so far, as timings and as values that are certainly bad."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain.client import Client
from autotune.domain.slo import Metric, Slo
from autotune.domain.timing import Timing
from autotune.openai import read_stream
from autotune.replay.frames import Done, Ended, Running, Tick
from autotune.replay.job import Job, Progress, Replayed
from autotune.score.counts import judged
from autotune.score.measure import quantile
from autotune.traffic import Due

_OK = 200


class Merged:
    """One window, put together from the frames of its workers.

    An answer is parsed here, in the tuner's process, when it is over: the workers only stamp. `shares` are
    the requests of each worker, in the order that its frames count them by.
    """

    def __init__(self, job: Job, shares: Sequence[Sequence[Due]]) -> None:
        self._job, self._shares = job, shares
        self._running: list[dict[int, Running]] = [{} for _ in shares]
        self._now_ns = [0] * len(shares)
        self._cut: list[tuple[Due, Ended]] = []
        self._over: list[tuple[Due, Timing]] = []
        self._finished = 0
        self._ended = 0
        self._bad = [0] * len(job.sla.slos)
        self._done: dict[int, Done] = {}

    @property
    def whole(self) -> bool:
        """True when every worker has told everything."""
        return len(self._done) == len(self._shares)

    def take(self, worker: int, frame: Tick | Ended | Done) -> None:
        """Add one frame."""
        match frame:
            case Tick():
                self._now_ns[worker] = frame.now_ns
                self._running[worker] = {one.position: one for one in frame.running}
            case Ended():
                self._running[worker].pop(frame.position, None)
                self._end(self._shares[worker][frame.position], frame)
            case Done():
                self._running[worker] = {}
                self._done[worker] = frame

    def bad(self) -> list[int]:
        """Values of each objective that are bad whatever comes: of what is over, of what waits too long."""
        totals = self._bad.copy()
        for share, running, now_ns in zip(self._shares, self._running, self._now_ns, strict=True):
            for one in running.values():
                due = share[one.position]
                if due.measured:
                    for at, slo in enumerate(self._job.sla.slos):
                        totals[at] += judged(slo, _so_far(slo, due, one, now_ns))[1]
        return totals

    def decided(self) -> bool:
        """True when some objective has more bad values than it may and the window need not run to its end."""
        return not self._job.run_to_end and any(
            bad > allowed for bad, allowed in zip(self.bad(), self._job.allowed, strict=True)
        )

    def progress(self) -> Progress:
        """Progress with the objective that is nearest to its end."""
        waiting = sum(
            share[position].measured
            for share, running in zip(self._shares, self._running, strict=True)
            for position in running
        )
        worst = max(zip(self.bad(), self._job.allowed, strict=True), key=lambda pair: pair[0] / (pair[1] + 1))
        return Progress(sent=self._ended + waiting, finished=self._finished, bad=worst[0], allowed=worst[1])

    def close(self, *, curtailed: bool) -> None:
        """Fix what is known of requests that were still on their way."""
        for due, frame in self._cut:
            if curtailed:
                self._keep(due, _timing(self._job, due, frame, error="cancelled", cancelled=True))
            elif frame.body:  # it streams: what it has not done yet is unknown
                error = "still running when the window closed"
                self._keep(due, _timing(self._job, due, frame, error=error, cancelled=True))
            else:
                self._keep(due, _timing(self._job, due, frame, error="timed out"))
        self._cut.clear()

    def timings(self) -> tuple[Timing, ...]:
        """The measured requests that are over, by due time."""
        timings = (timing for due, timing in self._over if due.measured)
        return tuple(sorted(timings, key=lambda timing: (timing.due_ns, timing.index)))

    def replayed(self, *, curtailed: bool) -> Replayed:
        """The whole window."""
        return Replayed(timings=self.timings(), curtailed=curtailed, client=self._client())

    def _end(self, due: Due, frame: Ended) -> None:
        if frame.cut:
            self._cut.append((due, frame))
        else:
            self._keep(due, _timing(self._job, due, frame, error=frame.error))

    def _keep(self, due: Due, timing: Timing) -> None:
        self._over.append((due, timing))
        if due.measured:
            self._ended += 1
            self._finished += timing.finished
            for at, slo in enumerate(self._job.sla.slos):
                self._bad[at] += judged(slo, timing)[1]

    def _client(self) -> Client:
        done = self._done.values()
        lags = sorted(lag for one in done for lag in one.send_lags_s)
        waited = [one.waited_s / one.wall_s for one in done if one.waited_s is not None]
        return Client(
            workers=len(self._shares),
            send_lag_p99_s=quantile(lags, 99) if lags else None,
            loop_lag_p99_s=max(
                (quantile(sorted(one.loop_lags_s), 99) for one in done if one.loop_lags_s), default=0.0
            ),
            cpu_s=sum(one.cpu_s for one in done),
            cpu_share=max(one.cpu_s / one.wall_s for one in done),
            waited_share=max(waited) if waited else None,
            reconnects=sum(one.reconnects for one in done),
        )


def _timing(job: Job, due: Due, frame: Ended, *, error: str | None, cancelled: bool = False) -> Timing:
    request = due.request
    answer = read_stream(frame.body, None if job.natural_stops else request.output_tokens)
    if error is None and frame.status not in (None, _OK):
        text = b"".join(part for _, part in frame.body)[:200].decode(errors="replace")
        error = f"HTTP {frame.status}: {text}"
    reason = error or answer.error
    return Timing(
        index=due.index,
        due_ns=frame.due_ns,
        sent_ns=frame.sent_ns,
        token_ns=answer.token_ns,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        ended_ns=frame.ended_ns,
        finished=reason is None and not cancelled,
        cancelled=cancelled,
        error=reason,
        seen_prompt_tokens=answer.prompt_tokens,
    )


def _so_far(slo: Slo, due: Due, one: Running, now_ns: int) -> Timing:
    """What is certain now of a request under way.

    Its first read holds the first token, or came before it. Between tokens only the silence since the last
    read is certain: what came in between has not been parsed.
    """
    stamp = one.last_ns if slo.metric is Metric.ITL else one.first_ns
    return Timing(
        index=due.index,
        due_ns=one.due_ns,
        sent_ns=one.sent_ns,
        token_ns=(stamp,) if stamp else (),
        prompt_tokens=due.request.prompt_tokens,
        output_tokens=due.request.output_tokens,
        ended_ns=now_ns,
        finished=False,
        cancelled=True,
    )

"""`autotune workload`: its commands and their options; the work is in autotune/cli/workloads.py."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

workload = typer.Typer(
    rich_markup_mode=None, help="Look at recorded traffic; convert, cut, merge and scale it."
)

File = Annotated[Path, typer.Argument(metavar="FILE")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE")]
Out = Annotated[
    str, typer.Option("--out", metavar="OUT", help="File to write in our format; - is standard output.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")]
SkipBad = Annotated[
    int,
    typer.Option("--skip-bad", metavar="N", min=0, help="Tolerate up to N bad rows a file, and name them."),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of what is drawn.")]


class By(StrEnum):
    """What makes a window busy."""

    requests = "requests"
    tokens = "tokens"


@workload.command()
def inspect(
    files: Files,
    skip_bad: SkipBad = 0,
    tpot: Annotated[
        str, typer.Option(metavar="TIME", help="Time per output token that the concurrency assumes.")
    ] = "30ms",
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object a file.")] = False,
) -> None:
    """Say what a recording holds: rate, burstiness, lengths, reuse."""
    from autotune.cli.workloads import inspect_files

    raise typer.Exit(inspect_files(files, skip_bad=skip_bad, tpot=tpot, as_json=as_json))


@workload.command()
def convert(  # noqa: PLR0917  typer's way of declaring options
    file: File,
    out: Out,
    rate: Annotated[
        float | None,
        typer.Option(metavar="R", help="For prompts without times: session starts per second, Poisson."),
    ] = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="Draw arrivals evenly within the steps of quantised stamps.")
    ] = False,
    seed: Seed = 0,
    skip_bad: SkipBad = 0,
    force: Force = False,
) -> None:
    """Write a recording of any format in ours."""
    from autotune.cli.workload_files import Target
    from autotune.cli.workloads import convert_file

    target = Target.parse(out, force=force)
    raise typer.Exit(convert_file(file, target, rate=rate, spread=spread, seed=seed, skip_bad=skip_bad))


@workload.command("slice")
def cut(  # noqa: PLR0917  typer's way of declaring options
    file: File,
    out: Out,
    busiest: Annotated[
        str | None, typer.Option(metavar="TIME", help="The window of this length that holds most.")
    ] = None,
    by: Annotated[By, typer.Option(help="What --busiest counts.")] = By.requests,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From here on, counted from the start.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Until before this.")] = None,
    share: Annotated[
        str | None, typer.Option(metavar="SHARE", help="The first part of all sessions, e.g. 30%.")
    ] = None,
    skip_bad: SkipBad = 0,
    force: Force = False,
) -> None:
    """Cut a part out, with whole sessions: those that start in it."""
    from autotune.cli.workload_files import Target
    from autotune.cli.workloads import Cut, slice_file

    asked = Cut.parse(busiest=busiest, by=by.value, from_=from_, to=to, share=share)
    raise typer.Exit(slice_file(file, Target.parse(out, force=force), asked, skip_bad=skip_bad))


@workload.command()
def merge(files: Files, out: Out, skip_bad: SkipBad = 0, force: Force = False) -> None:
    """Lay recordings over one another, each from its own start."""
    from autotune.cli.workload_files import Target
    from autotune.cli.workloads import merge_files

    raise typer.Exit(merge_files(files, Target.parse(out, force=force), skip_bad=skip_bad))


@workload.command()
def scale(  # noqa: PLR0917  as above
    file: File,
    out: Out,
    speed: Annotated[
        float | None,
        typer.Option(metavar="SPEED", help="Divides the gaps between sessions; time inside one stays."),
    ] = None,
    lengths: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Multiplies prompts, answers and blocks, e.g. 0.125."),
    ] = None,
    skip_bad: SkipBad = 0,
    force: Force = False,
) -> None:
    """Change the rate, or the lengths of the requests."""
    from autotune.cli.workload_files import Target
    from autotune.cli.workloads import scale_file

    raise typer.Exit(
        scale_file(file, Target.parse(out, force=force), speed=speed, lengths=lengths, skip_bad=skip_bad)
    )

"""Damage copies of recordings and read them: each is a workload or one `InputError`, or this fails.

By hand: python tests/fuzz/fuzz_formats.py --cases 20000 FILE…
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import format_samples
from format_mutations import accepted, excerpt, mutated


def say(line: str) -> None:
    """A line on standard output."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """Run the cases over the files given and the samples of the unit tests, up to the first failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", default="0")
    asked = parser.parse_args()
    sources = {f"sample {name}": sample.text.encode() for name, sample in format_samples.SAMPLES.items()}
    sources |= {str(path): path.read_bytes() for path in asked.files}
    names = sorted(sources)
    found: Counter[tuple[str, bool]] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    path = folder / "damaged"
    for case in range(asked.cases):
        name = names[case % len(names)]
        draw = random.Random(f"{asked.seed}/{case}")
        path.write_bytes(mutated(excerpt(sources[name], draw), draw))
        read = None
        try:
            read = accepted(path, skip_bad=draw.choice((0, 0, 1, 5)))
        finally:
            if read is None:
                say(f"case {case} of {name} failed; its file is {path}")
        found[name, read] += 1
    shutil.rmtree(folder)
    for name in names:
        say(f"{found[name, True]:6} read {found[name, False]:6} refused  {name}")
    say(f"{found.total()} cases, no failure")


if __name__ == "__main__":
    main()

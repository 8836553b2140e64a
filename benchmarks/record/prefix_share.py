"""How far the prefix share of text blocks is from that of the served model's own tokens.

Run with a Python that has tokenizers: python benchmarks/record/prefix_share.py MODEL_FOLDER QUESTIONS.jsonl
Writes benchmarks/record/prefix_share.json.

The chats are those of FastChat's MT-Bench questions (two turns each) with answers cut from this repository's
licence, in several kinds of traffic. Truth is a cache of whole blocks of 16 token ids behind equal prefixes,
over prompts alone, as vLLM hashes them; at most a prompt's tokens but the last count.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.record.asked import read_request
from autotune.record.prefixes import BLOCK_TOKENS, Prefixes
from autotune.record.tokens import Tokenizer
from autotune.record.turns import END, message, opening

ROOT = Path(__file__).parents[2]
PATH = "/v1/chat/completions"
SYSTEM = "You are the support assistant of a company that rents bicycles in five cities. " * 12
CODE = """def quote(order):
    total = sum(l.price * l.count for l in order.lines)  # EUR
    return {'total': total}

"""

Message = dict[str, str]
Chat = list[Message]


def chats(questions: Sequence[Sequence[str]], kind: str, draw: random.Random) -> Iterator[Chat]:
    """Prompts in order of arrival; each ends with a question, and the answer follows in the next."""
    words = (ROOT / "LICENSE").read_text(encoding="utf-8")
    for number, turns in enumerate(questions):
        so_far: Chat = []
        if kind in ("system", "system and code"):
            so_far.append({"role": "system", "content": SYSTEM})
        if kind == "two systems":
            so_far.append(
                {"role": "system", "content": SYSTEM + ("Answer in German. " * 40 if number % 2 else "")}
            )
        for turn in turns:
            code = CODE * draw.randrange(12) if kind == "system and code" else ""
            so_far.append({"role": "user", "content": turn + code})
            yield list(so_far)
            begin = draw.randrange(len(words) - 2000)
            so_far.append({"role": "assistant", "content": words[begin : begin + draw.randrange(100, 2000)]})


def share(prompts: Sequence[tuple[int, Sequence[int]]]) -> float:
    """Share of prompt tokens whose blocks an earlier prompt had; `(tokens, blocks)` of each."""
    seen: set[int] = set()
    hit = total = 0
    for tokens, blocks in prompts:
        known = 0
        while known < len(blocks) and blocks[known] in seen:
            known += 1
        hit += min(known * BLOCK_TOKENS, (tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS)
        total += tokens
        seen.update(blocks)
    return hit / total


def by_text(
    requests: Sequence[dict[str, Any]], lengths: Sequence[int], answers: Sequence[tuple[Message | None, int]]
) -> float:
    """The share as the recorder finds it without a tokenizer."""
    prefixes, found = Prefixes(b"key"), []
    for fields, tokens, (following, answer_tokens) in zip(requests, lengths, answers, strict=True):
        asked = read_request(PATH, json.dumps(fields).encode())
        text = None if asked is None else asked.text(asked.turns)
        if asked is None or text is None:
            raise SystemExit("a chat of ours was not understood")
        said = message(following).removeprefix(opening("assistant")).removesuffix(END) if following else b""
        blocks = prefixes.of_text(text, tokens, root=b"", answer=said, answer_tokens=answer_tokens - 1)
        found.append((tokens, blocks))
    return share(found)


def main() -> None:
    """Print and write one line for each kind of traffic."""
    tokenizer = Tokenizer(Path(sys.argv[1]))
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["turns"] for line in lines]
    results = []
    for kind in ("no system", "system", "two systems", "system and code"):
        prompts = list(chats(questions, kind, random.Random(1)))  # noqa: S311  lengths hide nothing
        requests = [{"messages": one} for one in prompts]
        ids = [tokenizer.chat(one) or [] for one in requests]
        lengths = [len(one) for one in ids]
        follows = [
            later[len(one)] if len(later) > len(one) else None
            for one, later in zip(prompts, [*prompts[1:], []], strict=True)
        ]
        answers = [(one, tokenizer.count(one["content"]) if one else 0) for one in follows]
        exact = Prefixes(b"key")
        truth = share([(len(one), exact.of_ids(one, root=b"")) for one in ids])
        text = by_text(requests, lengths, answers)
        found = {"traffic": kind, "requests": len(ids), "tokens": sum(lengths), "truth": truth, "text": text}
        results.append(found)
        print(f"{kind:<16} {len(ids)} requests, {sum(lengths)} tokens: {truth:.4f}, by text {text:.4f}")
    out = ROOT / "benchmarks/record/prefix_share.json"
    out.write_text(json.dumps({"model": Path(sys.argv[1]).name, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()

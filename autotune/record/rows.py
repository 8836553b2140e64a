"""One line of the recording for each request. Its form is specified in docs/reference/workloads.md."""

from __future__ import annotations

import zlib

import msgspec

from autotune.record.answered import Answered, read_answer
from autotune.record.asked import Asked, read_request
from autotune.record.conversations import Conversations
from autotune.record.exchange import Exchange
from autotune.record.framing import unchunked
from autotune.record.prefixes import Prefixes
from autotune.record.tokens import Tokenizer
from autotune.record.turns import END, opening

BYTES_PER_TOKEN = 4
"""UTF-8 bytes a token, where nobody counted: about what English text takes."""
LONGEST_BODY = 9_000_000
"""A line of more than 10 MB is none to a reader of recordings."""
_MOST_UNPACKED = 256 * 2**20


class Row(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A request as it is written; `failed` says in our words why it has no answer to replay."""

    offset_s: float
    prompt_tokens: int
    output_tokens: int
    counted: bool = True
    blocks: tuple[int, ...] = ()
    session: str | None = None
    think_s: float | None = None
    model: str | None = None
    path: str | None = None
    params: dict[str, int | float | bool] = {}
    failed: str | None = None
    body: msgspec.Raw | None = None


class Rows:
    """Makes rows, and remembers of earlier requests what later ones are compared with.

    `mismatched` counts prompts that the server found longer or shorter than the tokenizer did.
    """

    def __init__(self, *, key: bytes, origin_ns: int, keep_text: bool, tokenizer: Tokenizer | None) -> None:
        self._origin_ns, self._keep_text, self._tokenizer = origin_ns, keep_text, tokenizer
        self._prefixes, self._conversations = Prefixes(key), Conversations(key)
        self.mismatched = 0

    def row(self, told: Exchange, request: bytes, answer: bytes) -> Row | None:
        """The row of an exchange; None when its request is none of the API and was answered all the same."""
        body = _content(request, told.request_encoding, chunked=told.request_chunked)
        asked = None if body is None else read_request(told.path, body)
        raw = _content(answer, told.answer_encoding, chunked=told.answer_chunked)
        answered = Answered() if raw is None else read_answer(told.path, raw)
        if asked is None or body is None:
            return self._unread(told)
        turns = (*self._conversations.before(asked.follows), *asked.turns)
        text, ids = asked.text(turns), self._ids(told.path, asked, answered)
        prompt_tokens, counted_prompt = self._prompt_tokens(asked, answered, ids, text)
        output_tokens, counted_output = self._output_tokens(answered)
        failed = _failed(told, answered, output_tokens, readable=raw is not None)
        row = Row(
            offset_s=self._offset_s(told),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            counted=counted_prompt and counted_output,
            model=asked.model,
            path=told.path,
            params=asked.params,
            failed=failed,
        )
        if self._keep_text and len(body) <= LONGEST_BODY:
            row.body = _one_line(body)
        if turns:
            place = self._conversations.place(turns, told.arrived_ns)
            row.session, row.think_s = place.session, place.think_s and round(place.think_s, 6)
        if failed is None:
            row.blocks = self._blocks(asked, answered, ids, text, row)
            if turns and answered.turns:
                whole = (*turns, *answered.turns)
                self._conversations.ended(row.session or "", whole, told.ended_ns)
                if answered.id and told.path == "/v1/responses":
                    self._conversations.keep(answered.id, whole)
        return row

    def _unread(self, told: Exchange) -> Row | None:
        """A request that was refused, or broken off before it was whole, came all the same."""
        answered = Answered(finished=True)
        failed = _failed(told, answered, output_tokens=1, readable=True)
        if failed is None:
            return None
        return Row(
            offset_s=self._offset_s(told), prompt_tokens=0, output_tokens=0, path=told.path, failed=failed
        )

    def _offset_s(self, told: Exchange) -> float:
        return round((told.arrived_ns - self._origin_ns) / 1e9, 6)

    def _ids(self, path: str, asked: Asked, answered: Answered) -> list[int] | tuple[int, ...] | None:
        """The prompt's token ids, where they are known."""
        known = answered.prompt_ids or asked.ids
        if known is not None or self._tokenizer is None:
            return known
        if path == "/v1/chat/completions":
            return self._tokenizer.chat(asked.fields)
        return None if asked.prompt is None else self._tokenizer.text(asked.prompt.decode(errors="replace"))

    def _prompt_tokens(
        self, asked: Asked, answered: Answered, ids: list[int] | tuple[int, ...] | None, text: bytes | None
    ) -> tuple[int, bool]:
        if answered.prompt_tokens is not None:
            self.mismatched += ids is not None and len(ids) != answered.prompt_tokens
            return answered.prompt_tokens, True
        if ids is not None:
            return len(ids), True
        size = len(text) if text is not None else len(str(asked.fields.get("prompt", "")))
        return max(1, -(-size // BYTES_PER_TOKEN)), False

    def _output_tokens(self, answered: Answered) -> tuple[int, bool]:
        if answered.output_tokens is not None:
            return answered.output_tokens, True
        if answered.output_ids:
            return answered.output_ids, True
        if self._tokenizer is not None and answered.text:
            return self._tokenizer.count(answered.text), answered.choices <= 1
        return answered.events or -(-len(answered.text.encode(errors="replace")) // BYTES_PER_TOKEN), False

    def _blocks(
        self,
        asked: Asked,
        answered: Answered,
        ids: list[int] | tuple[int, ...] | None,
        text: bytes | None,
        row: Row,
    ) -> tuple[int, ...]:
        """Blocks of the prompt; those of its answer are remembered, since an engine has them in its cache."""
        if ids is not None:
            return self._prefixes.of_ids(ids[: row.prompt_tokens], root=asked.root)
        if text is None or (asked.follows and not self._conversations.before(asked.follows)):
            return ()
        said = b""
        if answered.choices == 1 and not answered.reasoned:
            sent_back = b"".join(answered.turns).removeprefix(opening("assistant")).removesuffix(END)
            said = sent_back if asked.turns else answered.text.encode(errors="replace")
        # the last token was never computed with: an engine caches up to the one before
        return self._prefixes.of_text(
            text, row.prompt_tokens, root=asked.root, answer=said, answer_tokens=row.output_tokens - 1
        )


def _failed(told: Exchange, answered: Answered, output_tokens: int, *, readable: bool) -> str | None:
    reasons = {
        "client left": told.left,
        "no answer": told.status is None,
        f"HTTP {told.status}": told.status is not None and not 200 <= told.status < 300,
        "connection lost": not told.complete,
        "unreadable answer": not readable,
        "error in the answer": answered.error,
        "no finish reason": not answered.finished,
        "no output": not output_tokens,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _content(raw: bytes, encoding: str, *, chunked: bool) -> bytes | None:
    """The body itself; None when it is packed in a way that the standard library cannot undo."""
    data = unchunked(raw) if chunked else raw
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(data, _MOST_UNPACKED)
    except zlib.error:
        return None


def _one_line(body: bytes) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.format(body, indent=-1) if b"\n" in body or b"\r" in body else body)

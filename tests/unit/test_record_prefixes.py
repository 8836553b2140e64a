"""Equal ids for equal beginnings, and the file that they are written to."""

from __future__ import annotations

import errno
import os
import stat
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InputError, SetupError
from autotune.record.parts import Parts, create
from autotune.record.prefixes import Prefixes

WORDS = b"".join(b"%d words of a prompt that is long enough. " % number for number in range(60))


def prefixes(**changes: int) -> Prefixes:
    return Prefixes(b"k" * 32, **changes)


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def test_ids_are_cut_every_sixteen_tokens() -> None:
    ids = list(range(50))
    blocks = prefixes().of_ids(ids, root=b"m")
    assert len(blocks) == 3  # and two tokens
    assert len(set(blocks)) == 3
    assert common(blocks, prefixes().of_ids([*ids[:40], 999, *ids[41:]], root=b"m")) == 2
    assert common(blocks, prefixes().of_ids(ids, root=b"other model")) == 0
    assert common(blocks, Prefixes(b"another key").of_ids(ids, root=b"m")) == 0
    assert all(0 <= block < 2**53 for block in blocks)


def test_equal_tokens_behind_another_beginning_are_another_block() -> None:
    one = prefixes().of_ids([1] * 16 + [7] * 16, root=b"")
    other = prefixes().of_ids([2] * 16 + [7] * 16, root=b"")
    assert one[1] != other[1]


def test_text_has_a_block_for_each_sixteen_tokens_that_the_server_counted() -> None:
    for tokens in (1, 15, 16, 17, 160, 1000):
        assert len(prefixes().of_text(WORDS, tokens, root=b"")) == tokens // 16


def test_a_second_turn_has_the_blocks_of_the_first_and_of_its_answer() -> None:
    made = prefixes()
    answer = b"an answer of some length " * 20
    first = made.of_text(WORDS, 640, root=b"", answer=answer, answer_tokens=100 - 1)
    answered = made.of_text(WORDS + answer, 640 + 100 - 1, root=b"")
    second = made.of_text(WORDS + b"an answer of some length " * 20 + b"and a question. " * 9, 800, root=b"")
    assert (len(first), len(answered), len(second)) == (40, 46, 50)
    assert common(first, second) == 40
    assert common(answered, second) == 46


def test_prompts_of_different_density_share_what_they_share() -> None:
    made = prefixes()
    made.of_text(WORDS + b"{}[]();" * 100, 1400, root=b"")
    one = made.of_text(WORDS + b"short", 700, root=b"")
    other = made.of_text(WORDS + b"and another, much longer question. " * 30, 900, root=b"")
    shared = common(one, other)
    # the first prompt says how many tokens the common text has; the others agree with it and one another
    assert shared == common(one, made.of_text(WORDS + b"!", 701, root=b""))
    assert shared >= 40


def test_what_was_forgotten_is_cut_anew_and_memory_is_bounded() -> None:
    made = prefixes(remembered=100)
    first = made.of_text(WORDS, 640, root=b"")
    for number in range(20):
        made.of_text(b"%d " % number + WORDS, 640, root=b"")
    assert len(made._cuts) <= 100
    assert common(first, made.of_text(WORDS + b"more", 660, root=b"")) < 40


def test_a_text_without_enough_bytes_still_has_its_blocks() -> None:
    assert len(prefixes().of_text(b"", 64, root=b"")) == 4
    assert len(prefixes().of_text(b"ab", 640, root=b"")) == 40


@given(st.binary(max_size=300), st.integers(1, 200), st.binary(max_size=300), st.integers(1, 200))
def test_texts_never_share_more_than_they_have_in_common(
    one: bytes, tokens: int, other: bytes, others: int
) -> None:
    made = prefixes()
    first, second = made.of_text(one, tokens, root=b""), made.of_text(other, others, root=b"")
    assert (len(first), len(second)) == (tokens // 16, others // 16)
    assert made.of_text(one, tokens, root=b"") == first
    if one[:1] != other[:1] and one and other and tokens <= len(one):
        assert common(first, second) == 0


def parts(
    out: Path, *, rotate_bytes: int | None = None, rotate_s: float | None = None, step: float = 0.0
) -> Parts:
    ticks = count(0.0, step)
    return Parts(
        out, create(out), b"HEAD\n", rotate_bytes=rotate_bytes, rotate_s=rotate_s, clock=lambda: next(ticks)
    )


def test_a_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = parts(out)
    made.begin()
    assert out.read_bytes() == b"HEAD\n"
    made.write(b"one\n")
    made.write(b"two\n")
    assert out.read_bytes() == b"HEAD\none\ntwo\n"


def test_a_part_is_never_larger_than_asked_but_for_a_single_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = parts(out, rotate_bytes=14)
    made.begin()
    for line in (b"one\n", b"two\n", b"three\n", b"a long line\n", b"x\n"):
        assert made.write(line)
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [
        b"HEAD\none\ntwo\n",
        b"HEAD\nthree\n",
        b"HEAD\na long line\n",
        b"HEAD\nx\n",
    ]
    assert made.count == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_part_begins_with_the_first_line_after_its_time(tmp_path: Path) -> None:
    made = parts(tmp_path / "out", rotate_s=3.0, step=1.0)  # every look at the clock takes a second
    made.begin()
    for _ in range(5):
        made.write(b"x\n")
    assert made.count > 1
    assert sum(path.read_bytes().count(b"x") for path in tmp_path.iterdir()) == 5


def test_names_that_are_taken_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.1").write_text("precious")
    made = parts(tmp_path / "out", rotate_bytes=10)
    for line in (b"one\n", b"two\n"):
        made.write(line)
    assert (tmp_path / "out.1").read_text() == "precious"
    assert (tmp_path / "out.2").read_bytes() == b"HEAD\ntwo\n"


def test_a_part_that_cannot_be_made_goes_on_in_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    made = parts(folder / "out", rotate_bytes=10)
    made.write(b"one\n")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert made.write(b"two\n")
    assert made.count == 1
    assert (made.trouble or "").startswith("No such file or directory")


def test_a_full_disk_takes_a_whole_line_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    made = parts(out)
    made.write(b"one\n")
    real = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if at == len(b"HEAD\none\ntw"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:2], at)

    monkeypatch.setattr(os, "pwrite", full)
    assert not made.write(b"two\n")
    assert out.read_bytes() == b"HEAD\none\n"
    assert (made.trouble or "").startswith("No space left on device")
    monkeypatch.setattr(os, "pwrite", real)
    assert made.write(b"three\n")
    assert out.read_bytes() == b"HEAD\none\nthree\n"


def test_a_file_is_new_and_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(create(tmp_path / "out"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600
    with pytest.raises(InputError, match="exists already"):
        create(tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="exists already"):
        create(tmp_path / "link")
    with pytest.raises(SetupError, match="No such file"):
        create(tmp_path / "none" / "out")

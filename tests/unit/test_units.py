"""Durations, sizes and shares: what is read, what is refused, and what is printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.units import (
    parse_duration,
    parse_share,
    parse_size,
    show_bytes,
    show_duration,
    show_limit,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("250us", 0.00025),
        ("2s", 2.0),
        ("1.5s", 1.5),
        ("15min", 900.0),
        ("1h", 3600.0),
        ("0.5h", 1800.0),
        (" 500 ms ", 0.5),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "500",
        "ms",
        "500 m",
        "5d",
        "-5s",
        "+5s",
        "1e3ms",
        ".5s",
        "5.s",
        "1,5s",
        "5s 5s",
        "nans",
        "٥s",
        "5%",
    ],
)
def test_what_has_no_number_or_no_known_unit_is_no_duration(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a duration") as caught:
        parse_duration(text)
    assert repr(text) in caught.value.message
    assert caught.value.hint == "write a number and a unit (us, ms, s, min, h), for example 500ms"


def test_no_duration_is_zero_or_too_long_for_a_float() -> None:
    with pytest.raises(InputError, match=r"'0ms' is not a budget: it must be above 0"):
        parse_duration("0ms", what="budget")
    with pytest.raises(InputError, match=r"is not a duration"):
        parse_duration("9" * 400 + "s")  # would be infinite
    with pytest.raises(InputError, match=r"must be above 0"):
        parse_duration("0." + "0" * 400 + "1s")  # would be 0.0


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5%", 0.005), ("100%", 1.0), (" 2 % ", 0.02)])
def test_a_share_is_read_between_0_and_1(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("text", ["1", "0.01", "0%", "101%", "-1%", "%", "1 percent", ""])
def test_a_share_needs_a_percent_sign_and_a_number_up_to_100(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a limit"):
        parse_share(text, what="limit")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        # vLLM's own table for --max-model-len: 1k is 1,000 and 1K is 1,024, 25.6k is 25,600.
        ("1k", 1_000),
        ("1K", 1_024),
        ("25.6k", 25_600),
        ("600M", 629_145_600),
        ("600m", 600_000_000),
        ("1GiB", 1_073_741_824),
        ("1GB", 1_000_000_000),
        ("2048", 2_048),
    ],
)
def test_a_small_suffix_is_decimal_and_a_large_one_binary(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "M", "600T", "600mb", "-1K", "9" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.00025, "0.25 ms"),
        (0.0042, "4.2 ms"),
        (0.01, "10 ms"),
        (0.412, "412 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (3.2, "3.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7800, "2 h 10 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_a_duration_is_shown_with_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "500ms"), (0.0005, "0.5ms"), (0.03, "30ms"), (1.0, "1s"), (1.5, "1.5s"), (1.234567, "1.234567s")],
)
def test_a_limit_is_shown_as_it_would_be_written(seconds: float, text: str) -> None:
    assert show_limit(seconds) == text


@given(st.integers(1, 10**9).map(lambda us: us / 1e6))
def test_a_shown_limit_reads_back_as_the_same_limit(seconds: float) -> None:
    assert parse_duration(show_limit(seconds)) == pytest.approx(seconds, rel=1e-11)


@pytest.mark.parametrize(
    ("count", "text"),
    [(600 * 2**20, "600 MiB"), (2**30, "1.0 GiB"), (13.8 * 2**30, "13.8 GiB"), (0, "0 MiB")],
)
def test_bytes_are_shown_in_binary_units(count: float, text: str) -> None:
    assert show_bytes(count) == text

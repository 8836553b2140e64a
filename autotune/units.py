"""Durations, sizes and shares: parsed at the edge, printed at the edge, seconds and bytes inside."""

from __future__ import annotations

import re

from autotune.errors import InputError

_DURATION_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_NUMBER_UNIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]+)?)\s*([A-Za-zµ%]*)\s*")
_SIZE_BYTES = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}


def parse_duration(text: str, *, what: str = "duration") -> float:
    """Seconds for '500ms', '2s', '15min' or '1h'.

    Raises `InputError` for a missing or unknown unit and for anything that is not above zero.
    """
    match = _NUMBER_UNIT.fullmatch(text)
    unit = match.group(2) if match else ""
    if match is None or unit not in _DURATION_S:
        raise InputError(
            f"{text!r} is not a {what}",
            hint="write a number and a unit (us, ms, s, min, h), for example 500ms",
        )
    seconds = float(match.group(1)) * _DURATION_S[unit]
    if seconds <= 0:
        raise InputError(f"{text!r} is not a {what}: it must be above 0", hint="for example 500ms")
    return seconds


def parse_share(text: str, *, what: str = "share") -> float:
    """The share between 0 and 1 for '1%' or '0.5%'; raises `InputError` without the % sign."""
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None or match.group(2) != "%" or not 0 < float(match.group(1)) <= 100:
        raise InputError(f"{text!r} is not a {what}", hint="write a percentage, for example 1%")
    return float(match.group(1)) / 100


def parse_size(text: str, *, what: str = "size") -> int:
    """Bytes for '600M' (binary) or '600m' (decimal), as vLLM reads its own size flags.

    Source: suffixes of `human_readable_int` in vllm/utils/argparse_utils.py.
    """
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None or match.group(2) not in _SIZE_BYTES:
        raise InputError(f"{text!r} is not a {what}", hint="write bytes or a suffix, e.g. 600M, 1GiB")
    return int(float(match.group(1)) * _SIZE_BYTES[match.group(2)])


def show_duration(seconds: float) -> str:
    """'412 ms', '3.2 s', '4 min 05 s', '2 h 10 min': three figures are enough to read."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def show_limit(seconds: float) -> str:
    """A limit as a user would write it again: '500ms', '2s', '1.5s'."""
    return f"{seconds * 1e3:.12g}ms" if seconds < 1 else f"{seconds:.12g}s"


def show_bytes(count: float) -> str:
    """'13.8 GiB' or '600 MiB'."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"

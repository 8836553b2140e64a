"""Whatever a file holds, it is a workload or one `InputError`; tests/fuzz has the long run."""

from __future__ import annotations

import json
import random
from pathlib import Path

import format_samples as samples
import pytest
from format_mutations import accepted, excerpt, mutated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SHIPPED = Path(__file__).parents[2] / "workloads"
ALONE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)


@ALONE
@given(name=st.sampled_from(sorted(samples.SAMPLES)), seed=st.integers(0, 2**32), skip_bad=st.integers(0, 2))
def test_a_damaged_sample_is_a_workload_or_one_error(
    tmp_path: Path, name: str, seed: int, skip_bad: int
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(mutated(samples.SAMPLES[name].text.encode(), random.Random(seed)))
    accepted(path, skip_bad=skip_bad)


@pytest.mark.parametrize("name", ["azure-conv-cpu.csv", "azure-conv-20min.csv", "README.md"])
def test_a_damaged_copy_of_a_shipped_file_is_a_workload_or_one_error(tmp_path: Path, name: str) -> None:
    whole = (SHIPPED / name).read_bytes()
    path = tmp_path / "damaged"
    for seed in range(60):
        draw = random.Random(f"{name}/{seed}")
        path.write_bytes(mutated(excerpt(whole, draw), draw))
        accepted(path, skip_bad=seed % 3)


@ALONE
@given(
    head=st.sampled_from(sorted(samples.SAMPLES)).map(lambda name: samples.SAMPLES[name].text.encode()),
    body=st.binary(max_size=80) | st.text('0123456789-:. ,\r\n"{}[]eE', max_size=80).map(str.encode),
    kept=st.floats(0, 1),
)
def test_any_bytes_are_a_workload_or_one_error(tmp_path: Path, head: bytes, body: bytes, kept: float) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(head[: int(len(head) * kept)] + body)
    accepted(path, skip_bad=0)


_NAMES = """
    offset_s prompt_tokens output_tokens blocks session think_s body failed autotune_workload block_tokens
    order timed timestamp input_length output_length hash_ids session_id delay chat_id parent_chat_id requests
    block_size id t in out type agent_id api_time think_time conversations from value question_id turns prompt
    usage text_input messages payload text tools extra max_tokens prompt_tokens_count output_tokens_count
    relative_timestamp prompt_0 prompt_1 error status
"""
_KEYS = st.sampled_from(_NAMES.split())
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "human", "gpt", "subagent", "end", "2026-01-01T00:00:00Z", "a" * 40])
    | st.integers(10**20, 10**30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@ALONE
@given(
    rows=st.lists(st.dictionaries(_KEYS, _VALUES, max_size=6), min_size=1, max_size=3), array=st.booleans()
)
def test_any_json_of_known_keys_is_a_workload_or_one_error(
    tmp_path: Path, rows: list[dict[str, object]], array: bool
) -> None:
    path = tmp_path / "json"
    path.write_text(json.dumps(rows) if array else "\n".join(json.dumps(row) for row in rows))
    accepted(path, skip_bad=0)

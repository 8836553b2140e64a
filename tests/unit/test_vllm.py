"""vLLM's adapter: launches, deployments, and what its logs say."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from report_fixtures import RUN

from autotune.domain.hardware import Cpu, Gpu, Hardware
from autotune.domain.launch import EngineSpec, LaunchPlan, StartFacts
from autotune.domain.outcome import Cause
from autotune.domain.space import Parameter, Rule, SearchSpace, Value
from autotune.engine import vllm
from autotune.space.known import VLLM as VLLM_OPTIONS

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
SMOLLM2 = replace(RUN.model, name="smollm2", path="models/smollm2-135m")
W8A8 = replace(SMOLLM2, path="models/smollm2-135m-w8a8", quantization="compressed-tensors")
ON_CPU = Hardware(
    cpu=Cpu(name="EPYC", cores=2, core_ids=(0, 1), memory_bytes=2**34, available_bytes=2**33, isa=()),
    gpus=(),
    driver=None,
)
GPUS = tuple(
    Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H200",
        memory_bytes=2**37,
        free_bytes=2**37,
        compute_capability=(9, 0),
    )
    for index in (2, 3, 5, 7)
)
ON_GPUS = replace(ON_CPU, gpus=GPUS)
VLLM = EngineSpec(name="vllm", version="0.32.0", device="cpu", command=("venv/bin/vllm",))


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def choice(name: str, default: Value, *others: Value) -> Parameter:
    return Parameter(name=name, levels=(default, *others), default=default, ordered=False)


SPACE = SearchSpace(
    name="test",
    engine="vllm",
    device="cpu",
    versions=">=0.26",
    parameters=(
        choice("max_num_seqs", 128, 64),
        choice("enable_prefix_caching", True, False),
        choice("enforce_eager", False, True),
        choice("threads", "auto", "all"),
        choice("variant", "base", "int8"),
        choice("tensor_parallel_size", 1, 2, 4),
        choice("pipeline_parallel_size", 1, 2),
        choice("quantization", "none", "fp8"),
    ),
    rules=(),
    presets=(),
    fixed={"kv_cache_memory_bytes": 629_145_600},
)


def planned(
    space: SearchSpace = SPACE, hardware: Hardware = ON_CPU, spec: EngineSpec = VLLM, **changed: Value
) -> LaunchPlan:
    return vllm.plan(
        {**space.default_point(), **changed},
        space=space,
        spec=spec,
        model=SMOLLM2,
        variants={"int8": W8A8},
        hardware=hardware,
        port=8107,
        start_deadline_s=600.0,
    )


TRIAL_ONLY = (
    *("--host", "127.0.0.1", "--port", "8107", "--served-model-name", "autotune"),
    *("--generation-config", "vllm", "--disable-uvicorn-access-log"),
)


# -- launches -------------------------------------------------------------------------------------


def test_the_default_point_emits_only_what_is_fixed() -> None:
    plan = planned()
    head = ("venv/bin/vllm", "serve", "models/smollm2-135m", "--kv-cache-memory-bytes", "629145600")
    assert plan.argv == (*head, *TRIAL_ONLY)
    assert plan.settings == {"model": "models/smollm2-135m", "kv_cache_memory_bytes": 629_145_600}
    assert (plan.port, plan.served_model, plan.start_deadline_s) == (8107, "autotune", 600.0)


def test_a_changed_setting_becomes_its_flag_and_a_boolean_its_word() -> None:
    plan = planned(max_num_seqs=64, enable_prefix_caching=False, enforce_eager=True)
    flags = plan.argv[plan.argv.index("629145600") + 1 : -len(TRIAL_ONLY)]
    assert flags == ("--max-num-seqs", "64", "--no-enable-prefix-caching", "--enforce-eager")


def test_a_variant_is_another_model_folder_and_no_flag() -> None:
    plan = planned(variant="int8")
    assert plan.argv[2] == "models/smollm2-135m-w8a8"
    assert plan.settings["model"] == "models/smollm2-135m-w8a8"
    assert not any("variant" in word for word in plan.argv)


def test_threads_are_environment_that_the_deployment_keeps() -> None:
    assert vllm.THREADS_ENV not in planned().env
    plan = planned(threads="all")
    assert plan.env["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert plan.deploy_env == {"VLLM_USE_AOT_COMPILE": "0", "VLLM_CPU_OMP_THREADS_BIND": "0-1"}
    assert not any("threads" in word for word in plan.argv)


def test_an_engine_neither_calls_home_nor_colours_its_log() -> None:
    env = planned().env
    assert env["VLLM_LOGGING_COLOR"] == "0"
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["VLLM_NO_USAGE_STATS"] == "1"
    assert not {"VLLM_LOGGING_COLOR", "HF_HUB_OFFLINE"} & set(planned().deploy_env)


@pytest.mark.parametrize(
    ("fixed", "changed", "visible"),
    [
        ({}, {}, "2"),
        ({}, {"tensor_parallel_size": 2}, "2,3"),
        ({}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, "2,3,5,7"),
        ({"data_parallel_size": 2}, {}, "2,3"),
        ({"data_parallel_size": 2}, {"tensor_parallel_size": 2}, "2,3,5,7"),
    ],
)
def test_an_engine_sees_the_gpus_it_needs_and_no_more(
    fixed: dict[str, Value], changed: dict[str, Value], visible: str
) -> None:
    plan = planned(replace(SPACE, fixed=fixed), ON_GPUS, replace(VLLM, device="cuda"), **changed)
    assert plan.env["CUDA_VISIBLE_DEVICES"] == visible
    assert plan.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert plan.deploy_env == {}


def test_without_a_gpu_none_is_named() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in planned().env


@pytest.mark.parametrize(
    ("cores", "text"),
    [((0, 1), "0-1"), ((3,), "3"), ((8, 9, 0, 1, 2, 3, 11), "0-3,8-9,11"), ((0, 2, 4), "0,2,4"), ((), "")],
)
def test_cores_are_written_as_ranges(cores: tuple[int, ...], text: str) -> None:
    assert vllm.core_list(cores) == text


@given(st.sets(st.integers(0, 300), max_size=40))
def test_core_ranges_name_exactly_the_cores(cores: set[int]) -> None:
    named: set[int] = set()
    for part in filter(None, vllm.core_list(tuple(cores)).split(",")):
        first, _, last = part.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == cores


# -- points that cannot run together --------------------------------------------------------------


def unfit(space: SearchSpace = SPACE, hardware: Hardware = ON_GPUS, **changed: Value) -> str | None:
    point = {**space.default_point(), **changed}
    return vllm.unfit(point, space=space, hardware=hardware, variants={"int8": W8A8, "copy": SMOLLM2})


def test_levels_that_can_run_alone_may_not_run_together() -> None:
    assert unfit(tensor_parallel_size=4) is None
    assert unfit(tensor_parallel_size=4, pipeline_parallel_size=2) == "needs 8 GPUs, 4 are in use"
    assert unfit(hardware=ON_CPU, tensor_parallel_size=4, pipeline_parallel_size=2) is None


def test_a_broken_rule_is_a_reason() -> None:
    rule = Rule(left="max_num_batched_tokens", right="max_num_seqs", why="one token each")
    tokens = choice("max_num_batched_tokens", 2048, 64)
    space = replace(SPACE, parameters=(*SPACE.parameters, tokens), rules=(rule,))
    assert unfit(space) is None
    assert (
        unfit(space, max_num_batched_tokens=64)
        == "max_num_batched_tokens must be at least max_num_seqs: one token each"
    )


def test_a_quantised_variant_is_not_quantised_again() -> None:
    assert unfit(variant="int8", quantization="fp8") == (
        "variant int8 is quantised already (compressed-tensors)"
    )
    assert unfit(variant="copy", quantization="fp8") is None
    assert unfit(variant="int8") is None


# -- precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "precision"),
    [
        ({"max_num_seqs": 4, "dtype": "auto", "quantization": "none", "variant": "base"}, "base"),
        ({"kv_cache_dtype": "fp8", "variant": "int8"}, "variant=int8 kv_cache_dtype=fp8"),
        ({"quantization": "fp8", "enforce_eager": True}, "quantization=fp8"),
        ({"dtype": "float16"}, "dtype=float16"),
        ({}, "base"),
    ],
)
def test_precision_names_what_changes_the_numbers_and_nothing_else(
    point: dict[str, Value], precision: str
) -> None:
    assert vllm.precision(point) == precision


# -- deployments ----------------------------------------------------------------------------------


def test_a_deployment_file_has_dashed_keys_and_no_false() -> None:
    plan = planned(max_num_seqs=64, enable_prefix_caching=False, threads="all")
    assert vllm.config_file(plan, ("Tuned by hand.", "", "Twice.")) == (
        "# Tuned by hand.\n"
        "#\n"
        "# Twice.\n"
        'model: "models/smollm2-135m"\n'
        "kv-cache-memory-bytes: 629145600\n"
        "max-num-seqs: 64\n"
        "no-enable-prefix-caching: true\n"
    )


printable = st.characters(categories=["L", "N", "P", "S"], include_characters=" ")
settings = st.dictionaries(
    st.sampled_from(sorted(VLLM_OPTIONS)),
    st.booleans() | st.integers(0, 2**40) | st.floats(0.01, 1e6) | st.text(printable, max_size=20),
    max_size=6,
)


@given(settings)
def test_a_deployment_file_is_yaml_that_says_what_the_argv_said(given_settings: dict[str, Value]) -> None:
    plan = replace(planned(), settings=given_settings)
    read = yaml.safe_load(vllm.config_file(plan, ("note",))) or {}
    assert all(value is not False for value in read.values())
    assert vllm.argv(read) == vllm.argv(given_settings)


def test_the_deploy_command_survives_a_shell() -> None:
    plan = planned(threads="all")
    spec = replace(VLLM, command=("/opt/my engines/bin/vllm",))
    words = shlex.split(vllm.deploy_command(plan, spec))
    assert words == [
        "VLLM_USE_AOT_COMPILE=0",
        "VLLM_CPU_OMP_THREADS_BIND=0-1",
        "/opt/my engines/bin/vllm",
        "serve",
    ]


# -- logs -----------------------------------------------------------------------------------------


def test_a_gpu_start_tells_its_facts() -> None:
    assert vllm.facts(log("gpu_start"), start_s=104.0) == StartFacts(
        start_s=104.0,
        kv_tokens=908_512,
        max_concurrency=110.90,
        weights_gib=13.8,
        kv_gib=110.9,
        compile_s=27.31,
    )


def test_a_cpu_start_tells_its_kv_tokens_and_concurrency_and_no_more() -> None:
    assert vllm.facts(log("cpu_start"), start_s=129.0) == StartFacts(
        start_s=129.0, kv_tokens=27_264, max_concurrency=3.33
    )


def test_an_empty_log_tells_nothing() -> None:
    assert vllm.facts("", start_s=1.0) == StartFacts(start_s=1.0)
    assert vllm.diagnose(1, "") is None


@pytest.mark.parametrize(
    ("name", "exit_code", "cause", "evidence"),
    [
        (
            "oom",
            1,
            Cause.OUT_OF_MEMORY,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total",
        ),
        (
            "kv_too_small",
            1,
            Cause.KV_TOO_SMALL,
            "To serve at least one request with the model's max seq len (8192), (0.18 GiB KV cache is needed",
        ),
        (
            "bad_flag",
            1,
            Cause.BAD_FLAG,
            "Value error, max_num_batched_tokens (16) must be greater than or equal to max_num_seqs (64).",
        ),
        ("argparse", 2, Cause.BAD_FLAG, "error: argument --dtype: invalid choice: 'int8' (choose from"),
        (
            "heads",
            1,
            Cause.UNSUPPORTED,
            "Value error, Total number of attention heads (9) must be divisible by tensor parallel size (2).",
        ),
        ("block_size", 1, Cause.UNSUPPORTED, "No common block size for 7 (CPU_ATTN: [MultipleOf(32)])"),
        (
            "busy_memory",
            1,
            Cause.OUT_OF_MEMORY,
            "Free memory on device cuda:0 (31.22/79.1 GiB) on startup is less than desired",
        ),
    ],
)
def test_the_cause_is_found_far_above_the_last_line(
    name: str, exit_code: int, cause: Cause, evidence: str
) -> None:
    found = vllm.diagnose(exit_code, log(name))
    assert found is not None
    assert found.cause is cause
    assert found.evidence.startswith(evidence)
    assert "\n" not in found.evidence
    assert " [type=" not in found.evidence
    assert "pid=" not in found.evidence
    assert len(found.evidence) <= 400


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("vllm: error: unrecognized arguments: --no-such-flag 1", Cause.BAD_FLAG),
        ("vllm serve: error: argument --max-num-seqs: invalid int value: 'many'", Cause.BAD_FLAG),
        ("  Input should be less than or equal to 1 [type=less_than_equal", Cause.BAD_FLAG),
        (
            "Available memory on node 0 (20.69/23.34 GiB) on kv cache allocation is less than requested",
            Cause.OUT_OF_MEMORY,
        ),
        (
            "Available memory on node 0 (20.93/23.34 GiB) on startup is less than desired CPU memory",
            Cause.OUT_OF_MEMORY,
        ),
        ("RuntimeError: CUDA error: out of memory", Cause.OUT_OF_MEMORY),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
            Cause.OUT_OF_MEMORY,
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory",
            Cause.OUT_OF_MEMORY,
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing", Cause.KV_TOO_SMALL),
        (
            "  Value error, Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
            Cause.UNSUPPORTED,
        ),
        (
            "The quantization method fp8 is not supported for the current GPU. Minimum capability: 75.",
            Cause.UNSUPPORTED,
        ),
        ("ValueError: No valid attention backend found for cuda with", Cause.UNSUPPORTED),
        (
            "  Value error, World size (4) is larger than the number of available GPUs (1) in this node.",
            Cause.UNSUPPORTED,
        ),
        (
            "  Value error, User-specified max_model_len (16384) is greater than the derived max_model_len",
            Cause.BAD_FLAG,
        ),
    ],
)
def test_each_known_text_has_its_cause(text: str, cause: Cause) -> None:
    found = vllm.diagnose(1, f"(APIServer pid=1) INFO before\n{text}\nRuntimeError: Engine core failed\n")
    assert found is not None
    assert found.cause is cause


@pytest.mark.parametrize("name", ["crash", "port_in_use", "gpu_start", "cpu_start"])
def test_a_log_without_a_cause_is_not_blamed_on_the_point(name: str) -> None:
    assert vllm.diagnose(1, log(name)) is None
    assert vllm.diagnose(0, log(name)) is None
    assert vllm.diagnose(None, log(name)) is None


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_silent_kill_is_memory(exit_code: int) -> None:
    found = vllm.diagnose(exit_code, log("cpu_start"))
    assert found is not None
    assert found.cause is Cause.OUT_OF_MEMORY


def test_the_log_outranks_the_exit_code() -> None:
    found = vllm.diagnose(-9, log("kv_too_small"))
    assert found is not None
    assert found.cause is Cause.KV_TOO_SMALL


def test_colours_do_not_hide_a_cause() -> None:
    coloured = log("oom").replace("(EngineCore pid=944)", "\x1b[1;36m(EngineCore pid=944)\x1b[0;0m")
    assert vllm.diagnose(1, coloured) == vllm.diagnose(1, log("oom"))

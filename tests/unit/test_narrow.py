"""What `narrow` settles, takes out and refuses, on machines whose numbers are known."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain.hardware import Cpu, Gpu, Hardware, ModelProfile
from autotune.domain.launch import EngineSpec
from autotune.domain.space import Exclusion, Parameter, Preset, Rule, SearchSpace, Value
from autotune.errors import AutotuneError, InputError, SetupError
from autotune.formats.space_yaml import load_space
from autotune.space.narrow import batch_defaults, narrow
from autotune.space.versions import admits, numbers

SPACES = Path(__file__).parents[2] / "search_spaces"
GIB = 2**30
CPU = Cpu(
    name="EPYC",
    cores=2,
    core_ids=(0, 1),
    memory_bytes=24 * GIB,
    available_bytes=20 * GIB,
    isa=("avx2", "avx512f", "avx512_bf16"),
)
ON_CPU = Hardware(cpu=CPU, gpus=(), driver=None)
SMOLLM2 = ModelProfile(
    name="smollm2-135m",
    path="models/smollm2-135m",
    architecture="LlamaForCausalLM",
    dtype="bfloat16",
    quantization=None,
    parameters=134_515_008,
    weights_bytes=269_030_016,
    layers=30,
    hidden_size=576,
    heads=9,
    kv_heads=3,
    head_size=64,
    vocab_size=49_152,
    max_position=8192,
)
LLAMA_8B = replace(SMOLLM2, name="llama-8b", layers=32, heads=32, kv_heads=8, head_size=128)
W8A8 = replace(SMOLLM2, name="smollm2-135m-w8a8", quantization="compressed-tensors")
VLLM_CPU = EngineSpec(name="vllm", version="0.32.0+cpu", device="cpu", command=("vllm",))
VLLM = EngineSpec(name="vllm", version="0.32.0", device="cuda", command=("vllm",))


def gpu(name: str, mib: int, capability: tuple[int, int], index: int = 0, free: float = 0.99) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name=name,
        memory_bytes=mib * 2**20,
        free_bytes=int(mib * 2**20 * free),
        compute_capability=capability,
    )


H200 = gpu("NVIDIA H200", 143_771, (9, 0))
B200 = gpu("NVIDIA B200", 183_359, (10, 0))
A100 = gpu("NVIDIA A100-SXM4-80GB", 81_920, (8, 0))
L4 = gpu("NVIDIA L4", 23_034, (8, 9))
T4 = gpu("Tesla T4", 15_360, (7, 5))
V100 = gpu("Tesla V100-SXM2-32GB", 32_768, (7, 0))


def machine(*gpus: Gpu) -> Hardware:
    return Hardware(cpu=CPU, gpus=gpus, driver="580.1")


def parameter(name: str, levels: tuple[Value, ...], default: Value) -> Parameter:
    ordered = all(isinstance(level, int | float) and not isinstance(level, bool) for level in levels)
    return Parameter(name=name, levels=levels, default=default, ordered=ordered)


def space_of(*parameters: Parameter, device: str = "cuda", **changes: object) -> SearchSpace:
    plain = SearchSpace(
        name="test",
        engine="vllm",
        device=device,
        versions=">=0.26,<0.34",
        parameters=parameters,
        rules=(),
        presets=(),
        fixed={},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def narrowed(
    space: SearchSpace,
    hardware: Hardware | None = None,
    engine: EngineSpec | None = None,
    *,
    model: ModelProfile = SMOLLM2,
    variants: dict[str, ModelProfile] | None = None,
    longest_tokens: int = 1200,
) -> tuple[SearchSpace, tuple[Exclusion, ...]]:
    if hardware is None:
        hardware = ON_CPU if space.device == "cpu" else machine(H200)
    if engine is None:
        engine = VLLM_CPU if space.device == "cpu" else VLLM
    return narrow(
        space,
        hardware=hardware,
        engine=engine,
        model=model,
        variants=variants or {},
        longest_tokens=longest_tokens,
    )


def levels(space: SearchSpace) -> dict[str, tuple[Value, ...]]:
    return {parameter.name: parameter.levels for parameter in space.parameters}


# -- the shipped spaces ---------------------------------------------------------------------------


def test_on_two_cores_that_multiply_bfloat16_only_float32_leaves_the_cpu_space() -> None:
    shipped = load_space(SPACES / "vllm-cpu.yaml")
    space, exclusions = narrowed(shipped)
    assert [str(exclusion) for exclusion in exclusions] == [
        "dtype=float32: worth a trial only on a CPU without avx512_bf16"
    ]
    assert set(levels(shipped)) - set(levels(space)) == {"dtype"}
    assert [preset.name for preset in space.presets] == ["all-cores", "all-cores-short-prefills"]


def test_without_bfloat16_instructions_float32_is_the_first_thing_to_try() -> None:
    cpu = replace(CPU, isa=("avx2", "avx512f"))
    space, exclusions = narrowed(
        load_space(SPACES / "vllm-cpu.yaml"), Hardware(cpu=cpu, gpus=(), driver=None)
    )
    assert exclusions == ()
    assert space.presets[0].settings == {"threads": "all", "dtype": "float32"}


def test_on_one_core_without_avx512_threads_and_fp8_kv_are_gone_with_their_presets() -> None:
    cpu = replace(CPU, cores=1, core_ids=(0,), isa=("avx2",))
    space, exclusions = narrowed(
        load_space(SPACES / "vllm-cpu.yaml"), Hardware(cpu=cpu, gpus=(), driver=None)
    )
    assert {str(exclusion) for exclusion in exclusions} == {
        "kv_cache_dtype=fp8: needs AVX-512 or AMX, which this processor lacks",
        "threads=all: there is one core, so that it is the same as auto",
    }
    assert not {"threads", "kv_cache_dtype"} & set(levels(space))
    assert space.presets == ()


def test_on_one_h200_the_gpu_space_has_its_own_defaults_and_no_parallelism() -> None:
    space, exclusions = narrowed(load_space(SPACES / "vllm.yaml"), model=LLAMA_8B)
    assert {str(exclusion) for exclusion in exclusions} == {
        "tensor_parallel_size=2: needs 2 GPUs, the run has 1",
        "tensor_parallel_size=4: needs 4 GPUs, the run has 1",
        "tensor_parallel_size=8: needs 8 GPUs, the run has 1",
        "pipeline_parallel_size=2: needs 2 GPUs, the run has 1",
    }
    assert space.default_point() == {
        "gpu_memory_utilization": 0.92,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 8192,
        "long_prefill_token_threshold": 0,
        "kv_cache_dtype": "auto",
        "quantization": "none",
        "enable_prefix_caching": True,
    }


def test_on_a_v100_fp8_is_gone_for_weights_and_kv() -> None:
    space, exclusions = narrowed(load_space(SPACES / "vllm.yaml"), machine(V100), model=LLAMA_8B)
    reasons = {str(exclusion) for exclusion in exclusions if "fp8" in str(exclusion)}
    assert reasons == {
        "quantization=fp8: needs compute capability 7.5, Tesla V100-SXM2-32GB has 7.0",
        "kv_cache_dtype=fp8: needs compute capability 8.9, Tesla V100-SXM2-32GB has 7.0",
    }
    assert [preset.name for preset in space.presets] == ["long-steps"]  # 2048 is the default there


def test_a_t4_takes_fp8_weights_but_no_fp8_kv() -> None:
    space, _ = narrowed(load_space(SPACES / "vllm.yaml"), machine(T4), model=LLAMA_8B)
    assert levels(space)["quantization"] == ("none", "fp8")
    assert "kv_cache_dtype" not in levels(space)


# -- defaults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "version", "tokens", "seqs"),
    [
        (H200, "0.26.0", 8192, 1024),
        (H200, "0.32.0", 8192, 1024),
        (B200, "0.26.0", 8192, 1024),
        (B200, "0.32.0", 16384, 1024),
        (A100, "0.32.0", 2048, 256),
        (L4, "0.32.0", 2048, 256),
    ],
)
def test_batch_defaults_follow_card_and_version(card: Gpu, version: str, tokens: int, seqs: int) -> None:
    engine = replace(VLLM, version=version)
    assert batch_defaults(engine, machine(card), {}, 1) == (tokens, seqs)


def test_batch_defaults_of_the_cpu_grow_with_its_workers() -> None:
    assert batch_defaults(VLLM_CPU, ON_CPU, {}, 1) == (2048, 128)
    assert batch_defaults(VLLM_CPU, ON_CPU, {}, 2) == (4096, 256)


def test_a_fixed_token_budget_caps_the_default_sequences() -> None:
    assert batch_defaults(VLLM, machine(H200), {"max_num_batched_tokens": 512}, 1) == (8192, 512)


def test_throughput_mode_doubles_both_defaults() -> None:
    assert batch_defaults(VLLM, machine(L4), {"performance_mode": "throughput"}, 1) == (4096, 512)


def test_an_engine_default_outside_the_levels_joins_them_in_order() -> None:
    space, _ = narrowed(space_of(parameter("max_num_seqs", (64, 2000), "engine")))
    assert space.parameters[0].levels == (64, 1024, 2000)
    assert space.parameters[0].default == 1024


def test_an_engine_default_of_words_joins_at_the_end() -> None:
    space, _ = narrowed(space_of(parameter("kv_cache_dtype", ("fp8", "fp8_e5m2"), "engine")))
    assert space.parameters[0].levels == ("fp8", "fp8_e5m2", "auto")


def test_an_engine_default_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="default of block_size is not known"):
        narrowed(space_of(parameter("block_size", (16, 32), "engine")))


# -- levels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "level", "default", "hardware", "model", "reason"),
    [
        ("tensor_parallel_size", 2, 1, machine(H200, H200), SMOLLM2, "9 attention heads do not divide by 2"),
        ("pipeline_parallel_size", 64, 1, machine(*[H200] * 64), SMOLLM2, "the model has 30 layers"),
        ("data_parallel_size", 3, 1, machine(H200, H200), SMOLLM2, "needs 3 GPUs, the run has 2"),
        ("kv_cache_dtype", "fp8_e5m2", "auto", machine(T4), SMOLLM2, "needs compute capability 8.0"),
        ("kv_cache_dtype", "nvfp4", "auto", machine(H200), SMOLLM2, "needs compute capability 10.0"),
        ("kv_cache_dtype", "fp8", "auto", machine(H200, A100), SMOLLM2, "A100-SXM4-80GB has 8.0"),
        ("dtype", "bfloat16", "auto", machine(T4), SMOLLM2, "needs compute capability 8.0"),
        ("quantization", "fp8", "none", machine(H200), W8A8, "quantised already (compressed-tensors)"),
        ("quantization", "awq", "none", machine(H200), SMOLLM2, "give that one as a variant"),
        ("block_size", 24, 16, machine(H200), SMOLLM2, "16 must divide it"),
        ("long_prefill_token_threshold", 9000, 0, machine(H200), SMOLLM2, "takes, 8,192 tokens"),
        ("variant", "w4", "base", machine(H200), SMOLLM2, "no variant of this name"),
    ],
)
def test_a_level_that_cannot_run_on_a_gpu_goes_with_its_reason(
    *, name: str, level: Value, default: Value, hardware: Hardware, model: ModelProfile, reason: str
) -> None:
    space, exclusions = narrowed(space_of(parameter(name, (default, level), default)), hardware, model=model)
    assert [(found.parameter, found.level) for found in exclusions] == [(name, level)]
    assert reason in exclusions[0].reason
    assert space.parameters == ()  # only its default is left, and that needs no flag


@pytest.mark.parametrize(
    ("name", "level", "default", "model", "reason"),
    [
        ("quantization", "fp8", "none", SMOLLM2, "need AMX"),
        ("kv_cache_dtype", "fp8", "auto", replace(SMOLLM2, head_size=80), "the model's is 80"),
        ("block_size", 16, 128, SMOLLM2, "32 must divide it"),
        ("tensor_parallel_size", 3, 1, SMOLLM2, "needs 3 cores, the run has 2"),
    ],
)
def test_a_level_that_cannot_run_on_the_cpu_goes_with_its_reason(
    name: str, level: Value, default: Value, model: ModelProfile, reason: str
) -> None:
    space = space_of(parameter(name, (default, level), default), device="cpu")
    _, exclusions = narrowed(space, model=model)
    assert [found.level for found in exclusions] == [level]
    assert reason in exclusions[0].reason


def test_parallel_sizes_count_together_with_the_smallest_of_the_others() -> None:
    space = space_of(
        parameter("tensor_parallel_size", (1, 2, 4), 1), parameter("pipeline_parallel_size", (1, 2), 1)
    )
    cards = [gpu("NVIDIA H200", 143_771, (9, 0), index) for index in range(2)]
    narrow_space, exclusions = narrowed(space, machine(*cards), model=LLAMA_8B)
    assert levels(narrow_space) == {"tensor_parallel_size": (1, 2), "pipeline_parallel_size": (1, 2)}
    assert [str(found) for found in exclusions] == ["tensor_parallel_size=4: needs 4 GPUs, the run has 2"]
    fixed = space_of(parameter("pipeline_parallel_size", (1, 2), 1), fixed={"tensor_parallel_size": 2})
    assert narrowed(fixed, machine(*cards), model=LLAMA_8B)[1][0].reason == "needs 4 GPUs, the run has 2"


def test_a_memory_share_that_is_not_free_is_gone() -> None:
    card = gpu("NVIDIA H200", 102_400, (9, 0), free=0.93)  # 100 GiB, 93 free
    space = space_of(parameter("gpu_memory_utilization", (0.9, 0.92, 0.94), "engine"))
    narrow_space, exclusions = narrowed(space, machine(card))
    assert levels(narrow_space)["gpu_memory_utilization"] == (0.9, 0.92)
    assert exclusions[0].reason == "asks for 94.0 GiB of GPU 0, 93.0 GiB are free"


def test_a_default_that_cannot_run_is_a_setup_error() -> None:
    card = gpu("NVIDIA H200", 102_400, (9, 0), free=0.5)
    with pytest.raises(SetupError, match=r"the default gpu_memory_utilization=0\.92: asks for") as raised:
        narrowed(space_of(parameter("gpu_memory_utilization", (0.4, 0.92), "engine")), machine(card))
    assert raised.value.hint


def test_a_fixed_setting_that_cannot_run_is_a_setup_error() -> None:
    space = space_of(parameter("max_num_seqs", (64, 128), 64), fixed={"tensor_parallel_size": 3})
    with pytest.raises(SetupError, match="the fixed tensor_parallel_size=3: needs 3 GPUs"):
        narrowed(space)


# -- rules ----------------------------------------------------------------------------------------

TOKENS_COVER_SEQS = Rule(left="max_num_batched_tokens", right="max_num_seqs", why="one token each")


def test_levels_that_every_other_side_forbids_are_gone() -> None:
    space = space_of(
        parameter("max_num_batched_tokens", (64, 256, 512), 512),
        parameter("max_num_seqs", (128, 512, 1024), 128),
        rules=(TOKENS_COVER_SEQS,),
    )
    narrow_space, exclusions = narrowed(space)
    assert [str(found) for found in exclusions] == [
        "max_num_seqs=1024: must not exceed max_num_batched_tokens, here at most 512",
        "max_num_batched_tokens=64: must not be below max_num_seqs, here at least 128",
    ]
    assert narrow_space.rules == (TOKENS_COVER_SEQS,)  # 256 and 512 still do not go together


def test_a_rule_holds_against_a_fixed_setting() -> None:
    space = space_of(
        parameter("max_num_seqs", (128, 256, 512), "engine"),
        fixed={"max_num_batched_tokens": 256},
        rules=(TOKENS_COVER_SEQS,),
    )
    narrow_space, _ = narrowed(space)
    assert levels(narrow_space) == {"max_num_seqs": (128, 256)}
    assert narrow_space.parameters[0].default == 256  # the engine lowers its 1024 to the tokens
    assert narrow_space.rules == ()


def test_defaults_that_break_a_rule_are_refused() -> None:
    space = space_of(
        parameter("max_num_batched_tokens", (64, 2048), 64),
        parameter("max_num_seqs", (32, 128), 128),
        rules=(TOKENS_COVER_SEQS,),
    )
    with pytest.raises(InputError, match=r"break its own rule .*: 64 < 128") as raised:
        narrowed(space)
    assert raised.value.hint == "one token each"


# -- variants and presets -------------------------------------------------------------------------


def test_variants_become_a_parameter_with_sorted_names() -> None:
    space, _ = narrowed(
        space_of(parameter("max_num_seqs", (64, 128), 64)), variants={"w8a8": W8A8, "w4a16": W8A8}
    )
    assert space.parameters[-1].levels == ("base", "w4a16", "w8a8")
    assert space.parameters[-1].default == "base"
    assert not space.parameters[-1].ordered


def test_a_space_may_choose_among_the_variants() -> None:
    space, exclusions = narrowed(
        space_of(parameter("variant", ("base", "w8a8"), "base")), variants={"w8a8": W8A8, "w4a16": W8A8}
    )
    assert levels(space) == {"variant": ("base", "w8a8")}
    assert exclusions == ()


def test_no_variant_may_take_the_name_of_the_base() -> None:
    with pytest.raises(InputError, match="cannot be called 'base'"):
        narrowed(space_of(parameter("max_num_seqs", (64, 128), 64)), variants={"base": W8A8})


def test_presets_keep_what_differs_and_go_when_nothing_does() -> None:
    space = space_of(
        parameter("max_num_seqs", (64, 1024), "engine"),
        parameter("quantization", ("none", "fp8"), "none"),
        parameter("max_num_batched_tokens", (32, 8192), "engine"),
        rules=(TOKENS_COVER_SEQS,),
        presets=(
            Preset(name="half-default", settings={"max_num_seqs": 1024, "quantization": "fp8"}, why=""),
            Preset(name="default", settings={"max_num_seqs": 1024}, why=""),
            Preset(name="twice", settings={"quantization": "fp8"}, why=""),
            Preset(name="no-such-variant", settings={"variant": "w8a8"}, why=""),
            Preset(name="breaks-the-rule", settings={"max_num_batched_tokens": 32}, why=""),
        ),
    )
    presets = narrowed(space)[0].presets
    assert [(preset.name, preset.settings) for preset in presets] == [
        ("half-default", {"quantization": "fp8"})
    ]


def test_a_preset_may_name_a_variant_of_the_run() -> None:
    preset = Preset(name="int8", settings={"variant": "w8a8"}, why="")
    space = space_of(parameter("max_num_seqs", (64, 128), 64), presets=(preset,))
    assert narrowed(space, variants={"w8a8": W8A8})[0].presets == (preset,)
    assert narrowed(space)[0].presets == ()


# -- refusals -------------------------------------------------------------------------------------

ONE = parameter("max_num_seqs", (64, 128), 64)


@pytest.mark.parametrize(
    ("space", "hardware", "engine", "error", "message"),
    [
        (
            space_of(ONE, engine="sglang"),
            machine(H200),
            VLLM,
            InputError,
            "is for sglang, the engine is vllm",
        ),
        (space_of(ONE), machine(H200), VLLM_CPU, InputError, "is for cuda, vllm 0.32.0+cpu is built for cpu"),
        (
            space_of(ONE),
            machine(H200),
            replace(VLLM, version="0.34.0"),
            InputError,
            "vllm >=0.26,<0.34, installed is 0.34.0",
        ),
        (
            space_of(ONE),
            machine(H200),
            replace(VLLM, version="dev"),
            InputError,
            "installed is dev",
        ),
        (space_of(ONE), ON_CPU, VLLM, SetupError, "needs a GPU and the run has none"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    space: SearchSpace,
    hardware: Hardware,
    engine: EngineSpec,
    error: type[AutotuneError],
    message: str,
) -> None:
    with pytest.raises(error) as raised:
        narrowed(space, hardware, engine)
    assert message in raised.value.message
    assert raised.value.hint


def test_a_request_longer_than_the_model_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError, match=r"has 8,193 tokens, smollm2-135m takes 8,192") as raised:
        narrowed(space_of(ONE), longest_tokens=8193)
    assert raised.value.hint
    narrowed(space_of(ONE), longest_tokens=8192)


def test_a_fixed_length_below_the_models_counts() -> None:
    with pytest.raises(InputError, match=r"has 4,097 tokens, smollm2-135m takes 4,096"):
        narrowed(space_of(ONE, fixed={"max_model_len": 4096}), longest_tokens=4097)


def test_a_request_larger_than_the_fixed_kv_pool_is_refused_with_both_numbers() -> None:
    # 2 · 30 layers · 3 heads · 64 · 2 bytes = 23,040 bytes a token; 600 MiB hold 27,306
    long = replace(SMOLLM2, max_position=131_072)
    space = space_of(ONE, device="cpu", fixed={"kv_cache_memory_bytes": 600 * 2**20})
    narrowed(space, model=long, longest_tokens=27_306)
    with pytest.raises(InputError, match=r"27,307 tokens, the KV pool of 600 MiB .* holds 27,306") as raised:
        narrowed(space, model=long, longest_tokens=27_307)
    assert "kv_cache_memory_bytes" in str(raised.value.hint)


def test_fp8_kv_and_two_ranks_each_double_what_the_pool_holds() -> None:
    # llama-8b: 2 · 32 · 8 · 128 · 2 = 131,072 bytes a token; 1 GiB holds 8,192, and 32,768 with both
    long = replace(LLAMA_8B, max_position=131_072)
    pool = {"kv_cache_memory_bytes": GIB, "kv_cache_dtype": "fp8", "tensor_parallel_size": 2}
    cards = machine(H200, replace(H200, index=1))
    narrowed(space_of(ONE, fixed=pool), cards, model=long, longest_tokens=32_768)
    with pytest.raises(InputError, match=r"holds 32,768"):
        narrowed(space_of(ONE, fixed=pool), cards, model=long, longest_tokens=32_769)


# -- versions -------------------------------------------------------------------------------------


def test_versions_compare_by_their_leading_numbers() -> None:
    assert numbers("0.32.1+cpu") == (0, 32, 1)
    assert numbers("v0.26.0rc2") == (0, 26)
    assert numbers("dev") == ()
    assert admits(">=0.26,<0.34", "0.26")
    assert admits(">=0.26,<0.34", "0.33.9.post1")
    assert not admits(">=0.26,<0.34", "0.34.0")
    assert admits("!=0.27, ==0.28.0", "0.28")


@pytest.mark.parametrize("text", ["", "0.26", "~=0.26", ">=0.26;<0.34", ">=a"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a range of versions"):
        admits(text, "0.32")


# -- what always holds ----------------------------------------------------------------------------

cards = st.sampled_from([H200, B200, A100, L4, T4, V100])
models = st.builds(
    lambda heads, kv, layers, quantization: replace(
        SMOLLM2, heads=heads, kv_heads=kv, layers=layers, quantization=quantization
    ),
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 80),
    st.sampled_from([None, "fp8", "awq"]),
)
SHIPPED = {
    device: load_space(SPACES / name) for device, name in (("cuda", "vllm.yaml"), ("cpu", "vllm-cpu.yaml"))
}


@settings(deadline=None)  # the machine may be busy
@given(
    card=st.none() | cards,
    count=st.integers(1, 8),
    model=models,
    cores=st.integers(1, 64),
    isa=st.sets(st.sampled_from(["avx2", "avx512f", "amx_tile"])),
    variants=st.sets(st.sampled_from(["w8a8", "w4a16"])),
)
def test_narrowing_never_removes_a_default_and_loses_no_level_silently(
    *, card: Gpu | None, count: int, model: ModelProfile, cores: int, isa: set[str], variants: set[str]
) -> None:
    cpu = replace(CPU, cores=cores, core_ids=tuple(range(cores)), isa=tuple(sorted(isa)))
    gpus = tuple(replace(card, index=index) for index in range(count)) if card else ()
    shipped = SHIPPED["cuda" if card else "cpu"]
    space, exclusions = narrowed(
        shipped,
        Hardware(cpu=cpu, gpus=gpus, driver=None),
        model=model,
        variants=dict.fromkeys(variants, W8A8),
    )
    excluded = {(exclusion.parameter, exclusion.level) for exclusion in exclusions}
    left = levels(space)
    for parameter in space.parameters:
        assert parameter.default in parameter.levels
        assert parameter.default != "engine"
        assert len(parameter.levels) > 1
    for parameter in shipped.parameters:
        kept = set(left.get(parameter.name, ()))
        gone = {level for name, level in excluded if name == parameter.name}
        assert not kept & gone
        if parameter.name in left:
            assert set(parameter.levels) <= kept | gone
        else:
            assert len(set(parameter.levels) - gone) <= 1
    assert space.broken_rule(space.default_point()) is None
    for preset in space.presets:
        assert all(value in left[name] for name, value in preset.settings.items())
        assert space.broken_rule({**space.default_point(), **preset.settings}) is None

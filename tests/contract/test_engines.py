"""Every built-in engine keeps the contract."""

from __future__ import annotations

from dataclasses import replace

from report_fixtures import RUN

from autotune.engine import vllm
from autotune.formats.space_yaml import load_space
from autotune.shipped import shipped
from autotune.testing.contracts import EngineContract


class TestVllmOnACpu(EngineContract):
    engine = vllm
    spec = replace(RUN.engine, version="0.32.0+cpu", device="cpu")
    space = load_space(shipped("search_spaces/vllm-cpu.yaml"))
    hardware = replace(RUN.hardware, gpus=())
    model = RUN.model
    changed = {"threads": "all"}


class TestVllmOnGpus(EngineContract):
    engine = vllm
    spec = RUN.engine
    space = RUN.space
    hardware = RUN.hardware
    model = RUN.model
    changed = {RUN.space.parameters[0].name: RUN.space.parameters[0].levels[0]}

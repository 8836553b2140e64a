"""Every built-in workload format keeps the contract."""

from __future__ import annotations

import format_samples as samples

from autotune.formats import (
    aiperf,
    azure,
    bailian,
    burstgpt,
    guidellm,
    mooncake,
    mtbench,
    native,
    openai_log,
    sharegpt,
    vllm_custom,
    weka,
)
from autotune.testing.contracts import FormatContract


class TestAzure(FormatContract):
    format = azure
    example = samples.AZURE.text
    broken = samples.AZURE.broken()
    unreadable = samples.AZURE.unreadable


class TestNativeVersion1(FormatContract):
    format = native
    example = samples.NATIVE_1.text
    broken = samples.NATIVE_1.broken()


class TestNativeVersion2(FormatContract):
    format = native
    example = samples.NATIVE_2.text
    broken = samples.NATIVE_2.broken()
    unreadable = samples.NATIVE_2.unreadable


class TestMooncake(FormatContract):
    format = mooncake
    example = samples.MOONCAKE.text
    broken = samples.MOONCAKE.broken()


class TestBailian(FormatContract):
    format = bailian
    example = samples.BAILIAN.text
    broken = samples.BAILIAN.broken()


class TestBurstGpt(FormatContract):
    format = burstgpt
    example = samples.BURSTGPT.text
    broken = samples.BURSTGPT.broken()
    unreadable = samples.BURSTGPT.unreadable


class TestWeka(FormatContract):
    format = weka
    example = samples.WEKA.text
    broken = {name: (samples.weka(*samples.WEKA_ROWS, row), 10) for name, row in samples.WEKA_BAD.items()}
    unreadable = samples.WEKA.unreadable


class TestShareGpt(FormatContract):
    format = sharegpt
    example = samples.SHAREGPT.text
    broken = {
        name: (samples.sharegpt(*samples.SHAREGPT_ROWS, row), 12)
        for name, row in samples.SHAREGPT_BAD.items()
    }
    unreadable = samples.SHAREGPT.unreadable


class TestMtBench(FormatContract):
    format = mtbench
    example = samples.MTBENCH.text
    broken = samples.MTBENCH.broken()


class TestVllmCustom(FormatContract):
    format = vllm_custom
    example = samples.VLLM_CUSTOM.text
    broken = samples.VLLM_CUSTOM.broken()


class TestGuidellm(FormatContract):
    format = guidellm
    example = samples.GUIDELLM.text
    broken = samples.GUIDELLM.broken()


class TestAiperf(FormatContract):
    format = aiperf
    example = samples.AIPERF.text
    broken = samples.AIPERF.broken()


class TestOpenAiLog(FormatContract):
    format = openai_log
    example = samples.OPENAI_LOG.text
    broken = samples.OPENAI_LOG.broken()

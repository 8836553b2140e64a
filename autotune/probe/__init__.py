"""What is here: the machine, the installed engine, the model's shapes, a free port.

The only place that asks the machine; every answer is a noun that the core can trust.
"""

from autotune.probe.checkpoint import model_profile
from autotune.probe.doctor import Finding, findings
from autotune.probe.installed import engine
from autotune.probe.load import CpuUse
from autotune.probe.machine import free_gpu_bytes, free_port, hardware

__all__ = [
    "CpuUse",
    "Finding",
    "engine",
    "findings",
    "free_gpu_bytes",
    "free_port",
    "hardware",
    "model_profile",
]

"""The scripted engine: a process that speaks like `vllm serve` and does what its script says.

`install` puts it on disk as an engine, `write_model` gives it a model to serve. Nothing in
`autotune` imports this package, and the package imports the standard library only, so that a start
costs a tenth of a second.
"""

from autotune.testing.install import install
from autotune.testing.model import write_model
from autotune.testing.script import Fault, Script

__all__ = ["Fault", "Script", "install", "write_model"]

"""SLA-driven configuration optimiser for LLM inference engines."""

__version__ = "0.1.0"

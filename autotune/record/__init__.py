"""The recorder: a relay in front of a server, and a process that writes down what passed."""

from autotune.record.place import Listen, Upstream
from autotune.record.recorder import Job, Listening, Recorder, Stand

__all__ = ["Job", "Listen", "Listening", "Recorder", "Stand", "Upstream"]

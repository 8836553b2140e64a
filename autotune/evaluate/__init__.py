"""One trial from launch to outcome; one window from due times to verdict."""

from autotune.evaluate.trial import confirm, evaluate, plan_of
from autotune.evaluate.window import Bench, capacity, own_error

__all__ = ["Bench", "capacity", "confirm", "evaluate", "own_error", "plan_of"]

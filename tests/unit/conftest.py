"""A property test is right or wrong, not fast or slow: no deadline for an example on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

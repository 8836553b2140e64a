"""Engines: how one is planned and diagnosed (pure, a file an engine) and how any is started and stopped."""

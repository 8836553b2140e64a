"""Formats: workloads and search spaces as files; a workload's format is found by its content."""

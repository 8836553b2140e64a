"""A client that is well."""

from __future__ import annotations

from autotune.domain.client import Client, OwnError

OWN = OwnError(
    requests=900,
    failed=0,
    seconds=3.0,
    rate_rps=300.0,
    events_per_s=19_200.0,
    ttft_p99_s=0.053,
    true_ttft_p99_s=0.050,
    send_error_p99_s=0.0004,
    server_late_p99_s=0.0001,
    cpu_s_per_event=14e-6,
    client=Client(
        workers=2,
        send_lag_p99_s=0.0002,
        loop_lag_p99_s=0.0003,
        cpu_s=0.8,
        cpu_share=0.3,
        waited_share=0.0,
        reconnects=0,
    ),
)

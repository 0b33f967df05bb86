"""The metrics that clients push to this broker (KIP-714).

- `client_instances`: which clients ask and push, which of them is too early, and what each pushed last
- `exposition`: what clients pushed as Prometheus text
- `metrics_data`: OpenTelemetry's MetricsData as plain values
- `otlp_exporter`: passes each push on to an OpenTelemetry endpoint
- `subscriptions`: which metrics which clients push, and how often
- `telemetry`: all of it for one broker

A broker imports it with the first client that asks for its subscription.
"""

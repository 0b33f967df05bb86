"""A broker inside a test.

- `embedded`: a whole broker inside a test: on a free port and a folder of its own, removed with the test
- `pytest_plugin`: fixtures for tests against Kafka: `tidelog_broker` and `tidelog_topic`, with no container
"""

"""A broker inside a test."""

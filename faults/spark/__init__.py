"""Kills under a Spark query that stores its rows exactly once: driver, Python workers and broker."""

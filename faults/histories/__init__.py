"""Checkers of histories, as those of Elle and Jepsen: which transactions and records contradict a promise."""

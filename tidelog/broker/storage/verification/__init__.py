"""Searches the files of a partition for damage, with no broker running and nothing changed.

Memory is bounded by the producers of one partition, not by its size.

Invariants: files are opened for reading only; findings are reported at once and not kept; damage is what no
crash leaves behind, all else that is worth reporting is a warning.
"""

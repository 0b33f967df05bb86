"""Trials of damaged data folders: flips, cuts, zeros, deletions and swaps of files of every kind.

`files` has the kinds of files and of damage, `sample` makes folders to damage, `probe` queries a broker that
was started on one, `verdict` checks the answers (pure), `trial` is the entry point.
"""

"""Trials of damaged data folders: flips, cuts, zeros, deletions and swaps of files of every kind.

`files` knows the kinds of files and the kinds of damage, `sample` makes folders to damage, `probe` asks a
broker that was started on one, `verdict` judges (pure), `trial` is the way in.
"""

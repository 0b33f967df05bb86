"""The command `tidelog`: one file per command. Slow imports are inside the commands."""

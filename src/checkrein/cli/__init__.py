"""The command line, and the composition: stores, shipped tools, checks and a task's own code meet here and nowhere below.

`main.py` only parses; each command is one file of `commands/`. Exit codes stand in `exits.py`, what a person sees in `screen.py`, `live.py` and `endings.py`.
"""

"""Tools: made of plain typed functions, registered by name, and dispatched with limits on time, number and output.

Nothing here knows a run, a plan or a model. What a tool declares decides what may be done with it; nothing is guessed.
"""

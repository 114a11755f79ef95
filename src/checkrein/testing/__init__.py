"""What tests of runs, stores and tools are made with; ships with the package so that users can hold their own to the same."""

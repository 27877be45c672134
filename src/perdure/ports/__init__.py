"""The doors between the engine and the rooms around it; their docstrings are the contract."""

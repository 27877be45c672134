"""The doors between the engine and the floors around it; their docstrings are the contract."""

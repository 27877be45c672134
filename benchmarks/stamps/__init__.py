"""Put on PYTHONPATH by `seen`."""

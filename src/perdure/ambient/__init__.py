"""The surroundings: clock, ids, randomness, logs, the data folder."""

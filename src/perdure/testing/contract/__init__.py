"""The parts of the store's contract suite, by subject; `perdure.testing.store_contract` puts them together."""

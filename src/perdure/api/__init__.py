"""The HTTP door: one file per noun of the API."""

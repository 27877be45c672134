"""Measurements of the running product, as ratios against a limit or a peer within the same run. See README.md."""

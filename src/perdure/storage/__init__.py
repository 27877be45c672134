"""Where accepted work is kept."""

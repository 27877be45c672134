"""Kills at random moments of real generations, for the test run and at length (`make soak`)."""

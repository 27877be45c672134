"""Tests of the HTTP door, over a scripted service."""

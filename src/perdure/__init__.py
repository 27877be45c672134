"""Perdure: a local-first, durable AI response service."""

__version__ = "0.1.0"

"""Decisions as pure functions: values in, a decision out."""

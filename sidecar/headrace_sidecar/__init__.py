"""Sidecars that stand beside GPUs and gateways."""

"""The Open Inference Protocol v2 as values: what a request may look like, and what it may not."""

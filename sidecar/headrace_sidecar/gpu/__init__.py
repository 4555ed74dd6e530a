"""The sidecar of a GPU node: front door, lifecycle of model versions, signals, repair, drain."""

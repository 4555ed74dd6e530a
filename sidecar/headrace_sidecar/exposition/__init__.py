"""How a sidecar tells what it knows: load reports and Prometheus."""

"""The gate: nothing is published that a real Envoy refuses."""

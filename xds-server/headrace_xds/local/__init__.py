"""The mesh of one machine: every program as a process, kept running, stopped together."""

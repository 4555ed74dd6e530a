"""The mesh language and its meaning: pure values and decisions, no I/O, no clock."""

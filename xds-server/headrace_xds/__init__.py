"""Control server: YAML in, xDS out, and the ledger of what the fleet holds."""

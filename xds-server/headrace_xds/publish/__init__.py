"""What is served to whom: between what the control server decided and the hub of streams."""

"""Training steps: forward, backward and optimizer update captured, planned and run as one program."""

"""Training steps of Keras: traced, planned, compiled, called like a function."""

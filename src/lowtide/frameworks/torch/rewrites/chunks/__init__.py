"""The largest updates, and the gradient of a loss over many classes, in chunks of rows that die one by one."""

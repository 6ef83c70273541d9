"""Export plans to formats of other tools, one module per format."""

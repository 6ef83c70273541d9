"""From a path or an object to a valid model: parsing, external weights, and the checks of the format."""

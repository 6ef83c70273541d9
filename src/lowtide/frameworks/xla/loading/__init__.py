"""From a file or an object to HLO text, and to what XLA's buffer assignment says beside it."""

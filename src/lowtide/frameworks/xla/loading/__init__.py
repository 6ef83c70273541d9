"""From a file or an object to HLO text, with XLA's buffer assignment if there is one."""

"""NetDef messages, their binary and their text format; what was read and not changed is written as it was."""

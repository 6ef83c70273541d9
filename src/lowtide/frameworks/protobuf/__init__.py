"""Messages of protocol buffers without protocol buffers: declared as data, read and written in both formats."""

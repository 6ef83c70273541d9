"""GraphDefs, MetaGraphDefs and SavedModels, read without protocol buffers and without copying constants.

A class keeps the encoded message that it was read from, and a change replaces single fields. So unknown fields
survive, and an unchanged graph is written as it was read. `messages` declares all field numbers.
"""

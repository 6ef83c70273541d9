"""GraphDefs, MetaGraphDefs and SavedModels, read without protocol buffers and without copying constants.

Unknown fields survive, and an unchanged graph is written as it was read.
"""

"""GraphDefs, MetaGraphDefs and SavedModels, read without protocol buffers and without copying constants.

Every class keeps the encoded message that it was read from. A change replaces single fields and keeps all other bytes,
so unknown fields survive and an unchanged graph is written exactly as it was read. Field numbers are declared once, in
`messages`.
"""

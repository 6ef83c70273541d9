"""Turn results into text for people, JSON for programs, pages and exports.

Each verb has a module that writes its result as text (`to_text`) and as JSON (`to_json`), declared in `fields`.
"""

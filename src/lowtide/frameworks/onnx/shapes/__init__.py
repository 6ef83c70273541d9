"""Infer the type, shape and bytes of every value without running anything and without reading weights.

A skeleton of the model without weights (`skeleton`) goes through ONNX's shape inference (`infer`), in rounds: each
round adds folded shape computations (`fold`), shapes of loops, or types that the file states. `known_forms` repeats the
inference as the runtime does it on loading, which knows less.
"""

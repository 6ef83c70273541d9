"""Infer the type, shape and bytes of every value without running anything or reading weights.

A copy without weights (`skeleton`) goes through ONNX's inference in rounds (`infer`). Each round adds folded shape
computations (`fold`), shapes of loops, or types that the file states. `known_forms` infers what the runtime knows on
loading.
"""

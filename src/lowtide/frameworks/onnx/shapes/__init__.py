"""Infer the type, shape and bytes of every value without running anything or reading weights.

A copy without weights (`skeleton`) goes through ONNX's inference in rounds (`infer`). Each round adds folded shape
computations (`fold`), shapes of loops, or types stated in the file. `known_forms` infers the runtime's knowledge on
loading.
"""

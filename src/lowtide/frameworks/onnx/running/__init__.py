"""Run models in ONNX Runtime: planned sessions, and processes of their own for measurements.

`Session` subclasses InferenceSession, runs a planned file in its order, and serves all allocations from one arena.
Measurements run in child processes (`children` starts them, `child` runs in them), so that memory and failures of the
runtime stay separate.
"""

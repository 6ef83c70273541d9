"""Python state of a training step: the values outside of tensors that its code may read or write.

The state is the attributes, containers, closures and globals that the step's code names. Changes between calls are
detected. Changes by the code itself are undone after capture and repeated in each call.
"""

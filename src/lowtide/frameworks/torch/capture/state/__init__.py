"""Python state of a training step: the values outside of tensors that its code may read or write.

A captured graph has the effects of Python code at the time of capture only. The state is the attributes, containers,
closures and globals that the code of the step's functions and modules names. Changes between calls are detected.
Changes by the code itself are undone after capture and repeated in each call.
"""

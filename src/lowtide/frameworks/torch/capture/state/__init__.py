"""Python state of a training step: the values outside of tensors that its code may read or write.

A captured graph has the effects of Python code at the time of capture only. So the state is found from the step's
functions and modules: attributes, containers, closures and globals that their code names. A change between two calls
is noticed before the second one. Changes that the code itself makes are undone after capture, and made again in each
call.
"""

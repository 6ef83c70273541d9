"""From a module to a graph: computations are read callees first, with the way back from ops to instructions.

A loop's state is part of its body: freed after the last use of the old value, allocated again for the new one. Else
every scan would seem to need another copy of its state.
"""

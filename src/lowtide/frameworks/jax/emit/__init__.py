"""Plans back into functions: run equations again, and make XLA follow the order of the plan.

XLA's CPU compiler drops the barriers of `jax.checkpoint` and merges recomputed values with the originals. A
*tie* makes a recomputed kernel depend on an anchor, the result of an earlier kernel: an operand becomes
zeros if the anchor begins with one particular NaN. XLA cannot know that it never does.

XLA orders all other kernels, and may fill memory early. A *hold* passes all live values between two windows of kernels
through a loop that never iterates, which no kernel crosses.
"""

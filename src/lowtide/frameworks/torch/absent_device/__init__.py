"""Plan training steps for a CUDA device that is not there.

A program is traced on fake tensors, and Inductor lowers, fuses and orders its kernels. No kernel is compiled and
nothing runs, so any machine and build of PyTorch will do, without Triton.

PyTorch caches many answers about a device for good, so everything happens in a new process (`child`).
"""

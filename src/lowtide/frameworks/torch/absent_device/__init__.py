"""Plan training steps for a CUDA device that is not there.

A program is traced on fake tensors of the device, and Inductor lowers, fuses and orders its kernels. No kernel is
compiled and nothing runs, so any machine and build of PyTorch will do, without Triton.

PyTorch asks a device guard, hooks and a table of attention kernels about the device (`absent` compiles them once), and
Inductor asks for its properties (`engine/costs/devices.json`). PyTorch caches many answers for good. So everything
happens in a new process (`child`), which a model in this process asks (`process`, `model`).
"""

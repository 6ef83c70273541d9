"""Access to the private and untyped parts of PyTorch, one file per subsystem.

A new release of PyTorch is ported in this folder only; see `docs/porting_torch.md`.
"""

"""Access to the private and untyped parts of PyTorch, one file per subsystem.

No other folder names anything private to PyTorch or switches the type checker off. A new release of PyTorch is
therefore ported here; `docs/porting_torch.md` lists the files and the steps.
"""

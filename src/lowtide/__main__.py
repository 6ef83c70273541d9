"""`python -m lowtide` is the `lowtide` command."""

from lowtide.cli import main

main()

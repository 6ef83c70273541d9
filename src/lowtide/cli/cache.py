"""`lowtide cache`: the plans kept on disk."""

import click

from lowtide.cli.output import print_page
from lowtide.core.units import format_bytes
from lowtide.engine.planning.plan_cache import VARIABLE, cache_files, cache_folder, clear_cache, size_of


@click.command("cache")
@click.option("--clear", is_flag=True, help="Delete all plans of the cache.")
def command(clear: bool) -> None:
    """Show the folder and the size of the plan cache, or clear it.

    Plans that took long are kept, so that the same program is planned once. LOWTIDE_CACHE names another folder, or is
    "off".
    """
    folder = cache_folder()
    if folder is None:
        print_page(f"the plan cache is off ({VARIABLE})")
    elif clear:
        print_page(f"{format_bytes(clear_cache())} deleted in {folder}")
    else:
        files = cache_files()
        print_page(f"{len(files) // 2} plans, {format_bytes(sum(map(size_of, files)))} in {folder}")

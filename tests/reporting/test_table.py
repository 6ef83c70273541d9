"""Columns of text."""

import pytest
from rich.cells import cell_len

from lowtide.core.units import format_by_space
from lowtide.reporting.table import format_ratio, format_table, printable, table_width, wrapped


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() -> None:
    rows = [["a", "5 B"], ["long name", "10.0 KiB"]]
    assert format_table(["name", "size"], rows, [False, True]) == (
        "name           size\na               5 B\nlong name  10.0 KiB"
    )


def test_a_table_without_rows_is_its_header() -> None:
    assert format_table(["name", "size"], [], [False, True]) == "name  size"


def test_the_widest_names_are_cut_in_the_middle_until_the_page_is_wide_enough() -> None:
    rows = [["1.0 MiB", "short", "model.layers.0.mlp.up_proj at a_long_name.py:123"], ["1 B", "größer, 大大大", ""]]
    lines = format_table(["size", "name", "where"], rows, [True, False, False], 50).splitlines()
    assert max(map(cell_len, lines)) <= 50
    assert lines[1].startswith("1.0 MiB  short")
    assert lines[1].endswith("name.py:123")
    assert "…" in lines[1]
    assert lines[2].endswith("größer, 大大大")


def test_the_rest_of_a_long_line_stands_beneath_its_value() -> None:
    words = "nothing in this sentence is short enough to be seen on one line of a page alone"
    assert wrapped(f"  planned peak     1.0 MiB   ({words})\nshort") == [
        "  planned peak     1.0 MiB   (nothing in this sentence is short enough to be",
        "                   seen on one line of a page alone)",
        "short",
    ]
    assert wrapped(f"{words} {words}")[1].startswith("      ")


def test_text_for_a_file_is_not_broken_and_tables_have_at_least_60_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "word " * 40 + "end"
    monkeypatch.delenv("COLUMNS")
    assert wrapped(words) == [words]
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, wrapped(words))) <= 40
    assert table_width() == 60
    monkeypatch.setenv("COLUMNS", "120")
    assert max(map(len, wrapped(words))) > 100
    assert table_width() == 120


def test_a_name_wider_than_the_page_is_never_broken() -> None:
    path = f"/{'folder/' * 20}plan.json"
    assert wrapped(f"{path}: valid for a program") == [f"{path}:", "      valid for a program"]


def test_control_characters_are_spelled_out_so_that_a_row_stays_one_harmless_line() -> None:
    table = format_table(["name", "next"], [["a\nb\x1b[31m\u202e", "c"]], [False, False])
    assert table.splitlines()[1] == r"a\nb\x1b[31m\u202e  c"
    assert printable("größer, 大") == "größer, 大"


def test_one_space_is_a_bare_figure_and_several_are_named() -> None:
    assert format_by_space({"device": 2048}) == "2,048 B"
    assert format_by_space({"device": 2048, "host": 5}) == "device 2,048 B, host 5 B"


def test_ratios_are_of_the_sums_of_all_spaces() -> None:
    assert format_ratio({"device": 1, "host": 2}, {"device": 4, "host": 0}) == "0.750"
    assert format_ratio({"device": 1}, {"device": 0}) == "-"

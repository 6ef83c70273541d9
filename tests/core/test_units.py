"""Bytes as people write them, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.core.units import exact_bandwidth, exact_size, format_bytes, given_bytes, parse_bandwidth, parse_bytes


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        (17, 17),
        ("1048576", 1048576),
        ("8 GiB", 8 * 2**30),
        ("8gib", 8 * 2**30),
        (" 512kB ", 512_000),
        ("1.5 MiB", 3 * 2**19),
        ("0.1 kB", 100),
        ("0.0001kB", 0),
        ("1.9 B", 1),
        ("3 TB", 3 * 10**12),
        ("16TiB", 2**44),
        ("24G", 24 * 2**30),
        ("1.5 m", 3 * 2**19),
    ],
)
def test_sizes_are_exact_ints_rounded_down(text: str | int, wanted: int) -> None:
    assert parse_bytes(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "GiB",
        "8 Gib ps",
        "8GG",
        "-1",
        "1e9",
        "1,000",
        "0x10",
        ".5",
        "5.",
        "nan",
        "inf",
        "9" * 5000,
        "\u0663",
        -1,
    ],
)
def test_anything_else_is_a_usage_error_in_one_line(text: str | int) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [1, 24, "24", " 50 ", 2**20 - 1, "1048575"])
def test_a_bare_number_below_a_mebibyte_lacks_its_unit(size: str | int) -> None:
    number = str(size).strip()
    with pytest.raises(UsageError, match=f"^{number} is {number} bytes; write '{number}MiB' or '{number}GiB', or "):
        given_bytes(size)
    assert given_bytes(f"{number} B") == int(number)


@pytest.mark.parametrize("size", ["0.5", " 24.5 ", ".5", 0.5])
def test_a_number_with_a_point_is_no_size_without_a_unit(size: str | float) -> None:
    number = float(size)
    with pytest.raises(UsageError, match=f"^{number} has no unit; write '{number}GiB'$"):
        given_bytes(size)


def test_a_computed_number_of_bytes_may_be_a_float() -> None:
    assert given_bytes(0.9 * 2**30) == int(0.9 * 2**30)
    for size in (float("inf"), float("nan"), -1.0):
        with pytest.raises(UsageError, match="write it like"):
            given_bytes(size)


@pytest.mark.parametrize("size", [0, "0", 2**20, "1048576", "24G", "24GB", "24 GiB", "50 B"])
def test_a_size_with_a_unit_or_of_a_mebibyte_is_accepted(size: str | int) -> None:
    assert given_bytes(size) == parse_bytes(size)


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (0, "0 B"),
        (10_239, "10,239 B"),
        (10_240, "10.0 KiB"),
        (2**20 - 1, "1,024.0 KiB"),
        (2**20, "1.0 MiB"),
        (313_932_000, "299.4 MiB"),
        (24 * 2**30, "24.00 GiB"),
        (2**40, "1,024.00 GiB"),
        (-2048, "-2,048 B"),
    ],
)
def test_a_figure_has_a_unit_of_its_size(count: int, wanted: str) -> None:
    assert format_bytes(count) == wanted


@given(st.integers(0, 2**62))
def test_an_exact_size_reads_back_as_it_is(count: int) -> None:
    assert given_bytes(exact_size(count)) == count


@given(st.integers(1, 2**50) | st.integers(1, 10**5).map(lambda each: each * 10**7))
def test_an_exact_bandwidth_reads_back_as_it_is(bytes_per_s: int) -> None:
    assert parse_bandwidth(exact_bandwidth(bytes_per_s)) == bytes_per_s


@given(st.integers(0, 2**62))
def test_a_formatted_size_reads_back_within_its_last_decimal(count: int) -> None:
    again = parse_bytes(format_bytes(count).replace(",", ""))
    assert abs(again - count) <= count * 0.05 + 1


def test_a_bandwidth_is_a_size_per_second() -> None:
    assert parse_bandwidth("12 GB/s") == parse_bandwidth("12gb / S") == 12 * 10**9
    assert parse_bandwidth("0 B/s") == 0
    for text in ("12GB", "12GB/min", "/s", "fast/s"):
        with pytest.raises(UsageError, match="cannot read"):
            parse_bandwidth(text)

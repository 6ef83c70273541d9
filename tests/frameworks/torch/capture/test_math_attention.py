"""Capturing warns if attention on "meta" became plain products, but not for a kernel called by name."""

import warnings

import pytest
import torch

import lowtide

aten = torch.ops.aten


def _attend(query: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)


def _attend_by_name(query: torch.Tensor) -> torch.Tensor:
    return aten._scaled_dot_product_flash_attention(query, query, query, 0.0, is_causal=True)[0]


def test_products_with_scores_on_meta_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="scores of length x length"):
        lowtide.read((_attend, (torch.empty(2, 4, 16, 8, device="meta"),)))


def test_a_kernel_by_its_name_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = lowtide.read((_attend_by_name, (torch.empty(2, 4, 16, 8, device="meta"),)))
    assert any("flash_attention" in kind for kind in graph.op_kinds)

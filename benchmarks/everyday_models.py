"""The fourteen models that everyday training is measured on: those of `measured_models`, and seven of other shapes."""

from typing import Any

import torch
from measured_models import MODELS, Batch, MeasuredModel, Size
from torch import nn
from torch.nn import functional
from training_models import WithLoss
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    CLIPConfig,
    CLIPModel,
    MambaConfig,
    MambaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

SMALL = Size(width=128, layers=2, vocabulary=512, sequences=4, length=128, images=8, pixels=64)
"""Small enough that Inductor compiles a model in half a minute of one core; activations outweigh gradients."""


class OwnLoss(nn.Module):
    """A model of the library transformers that makes its loss itself, called by position."""

    def __init__(self, model: nn.Module, *names: str, **more: Any) -> None:
        super().__init__()
        self.model = model
        self._names = names
        self._more = more

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """Return the model's own loss."""
        return self.model(**dict(zip(self._names, batch, strict=True)), **self._more).loss


class GraphNetwork(nn.Module):
    """Messages along edges, summed at the nodes they reach, with a residual connection; one class a node."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.Linear(2 * width, width), nn.Linear(width, width), nn.LayerNorm(width)])
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 16)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of (nodes, width) joined by (2, edges)."""
        source, target = edges
        for message, update, norm in self.layers:  # type: ignore[misc]
            sent = functional.gelu(message(torch.cat([nodes[source], nodes[target]], -1)))
            summed = torch.zeros_like(nodes).index_add(0, target, sent)
            nodes = nodes + functional.gelu(update(norm(summed)))
        return functional.cross_entropy(self.head(nodes), labels)


class Cells(nn.Module):
    """An LSTM written as cells, step by step, which TorchDynamo unrolls."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 16)

    def forward(self, sequence: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy over the steps of (length, batch, width)."""
        states = [(sequence.new_zeros(sequence.shape[1:]),) * 2 for _ in self.cells]
        losses: list[torch.Tensor] = []
        for value, label in zip(sequence.unbind(), labels.unbind(), strict=True):
            given = value
            for place, cell in enumerate(self.cells):
                states[place] = cell(given, states[place])
                given = states[place][0]
            losses.append(functional.cross_entropy(self.head(given), label))
        return torch.stack(losses).mean()


def _tokens(size: Size, length: int | None = None) -> torch.Tensor:
    return torch.randint(4, size.vocabulary, (size.sequences, length or size.length))


def _bart(size: Size) -> tuple[nn.Module, Batch]:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "layers": size.layers,
            "attention_heads": size.heads,
            "ffn_dim": 4 * size.width,
        }.items()
    }
    config = BartConfig(
        vocab_size=size.vocabulary, d_model=size.width, max_position_embeddings=size.length, use_cache=False, **sides
    )
    return OwnLoss(BartForConditionalGeneration(config), "input_ids", "labels"), (_tokens(size), _tokens(size))


def _whisper(size: Size) -> tuple[nn.Module, Batch]:
    config = WhisperConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=4 * size.width,
        decoder_ffn_dim=4 * size.width,
        max_source_positions=size.length,
        max_target_positions=size.length,
        use_cache=False,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
    )
    sound = torch.randn(size.sequences, config.num_mel_bins, 2 * size.length)
    return OwnLoss(WhisperForConditionalGeneration(config), "input_features", "labels"), (sound, _tokens(size))


def _mamba(size: Size) -> tuple[nn.Module, Batch]:
    config = MambaConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, num_hidden_layers=size.layers, state_size=8, use_cache=False
    )
    return WithLoss(MambaForCausalLM(config)), (_tokens(size, 16), _tokens(size, 16))


def _clip(size: Size) -> tuple[nn.Module, Batch]:
    shared = {
        "hidden_size": size.width,
        "intermediate_size": 4 * size.width,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
    }
    text = {"vocab_size": size.vocabulary, "max_position_embeddings": size.length, "eos_token_id": 2, **shared}
    images = {"image_size": size.pixels, "patch_size": 8, **shared}
    config = CLIPConfig(text_config=text, vision_config=images, projection_dim=size.width)
    batch = torch.randint(4, size.vocabulary, (size.images, size.length // 2))
    model = OwnLoss(CLIPModel(config), "input_ids", "pixel_values", return_loss=True)
    return model, (batch, torch.randn(size.images, 3, size.pixels, size.pixels))


def _mixtral(size: Size) -> tuple[nn.Module, Batch]:
    config = MixtralConfig(
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        intermediate_size=2 * size.width,
        num_attention_heads=size.heads,
        num_key_value_heads=max(1, size.heads // 2),
        num_local_experts=4,
        vocab_size=size.vocabulary,
        use_cache=False,
    )
    return WithLoss(MixtralForCausalLM(config)), (_tokens(size), _tokens(size))


def _graph_network(size: Size) -> tuple[nn.Module, Batch]:
    n_nodes = size.sequences * size.length
    batch = (
        torch.randn(n_nodes, size.width),
        torch.randint(0, n_nodes, (2, 4 * n_nodes)),
        torch.randint(0, 16, (n_nodes,)),
    )
    return GraphNetwork(size.width, 2 * size.layers), batch


def _cells(size: Size) -> tuple[nn.Module, Batch]:
    length, batch = 16, 8 * size.sequences
    return Cells(size.width, size.layers), (
        torch.randn(length, batch, size.width),
        torch.randint(0, 16, (length, batch)),
    )


EVERYDAY = (
    *MODELS,
    MeasuredModel("BART", _bart, "model.model.decoder.layers"),
    MeasuredModel("Whisper", _whisper, "model.model.decoder.layers"),
    MeasuredModel("Mamba", _mamba, "model.backbone.layers"),
    MeasuredModel("CLIP", _clip, "model.vision_model.encoder.layers"),
    MeasuredModel("Mixtral", _mixtral, "model.model.layers"),
    MeasuredModel("graph network", _graph_network, None),
    MeasuredModel("LSTM in cells", _cells, None),
)

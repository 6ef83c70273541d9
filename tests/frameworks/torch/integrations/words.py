"""A small language model with random weights, its tokenizer and its text, for trainers that would download theirs."""

from typing import Any

import torch

N_WORDS = 1000
SPECIAL = ("<pad>", "<eos>", "<unk>")


def tokenizer() -> Any:
    """Return a tokenizer of `N_WORDS` words, "w0" to "w999"."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *map("w{}".format, range(N_WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def llama() -> Any:
    """Return a Llama of two layers."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=N_WORDS + len(SPECIAL),
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=1,
    )
    return transformers.LlamaForCausalLM(config)


def tokens(rows: int = 16) -> torch.Tensor:
    """Return rows of 64 random words."""
    return torch.randint(len(SPECIAL), N_WORDS + len(SPECIAL), (rows, 64), generator=torch.Generator().manual_seed(0))

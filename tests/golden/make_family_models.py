#!/usr/bin/env python3
"""Writes tests/golden/families: a small random checkpoint of each model family, and what Hugging
Face's transformers makes of it in float32.

    python3 tests/golden/make_family_models.py [NAME...]
                      (torch, transformers 4.46, qwen3's 4.53, the last three 5.24, safetensors, numpy)

Every folder has config.json, the weights as they are published (sharded bfloat16, float16 or
float32) and golden.json: the logits after a prompt of 100 tokens, and after each of 16 more. What
the families differ in shows at this size: positions scaled as Llama-3.1's, with waves on both sides
of the bounds, linearly, or by YaRN; a layer without positions; head_dim that is not hidden / heads;
biases; norms of queries and keys; a sliding window shorter than the prompt; tied and separate heads.
The same bytes whenever it runs.
"""
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          SmolLM3Config, SmolLM3ForCausalLM)

FOLDER = pathlib.Path(__file__).parent / "families"
VOCAB = 160
SIZES = dict(vocab_size=VOCAB, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             max_position_embeddings=512, bos_token_id=0, eos_token_id=1, rms_norm_eps=1e-5)


def families():
    yield "llama", LlamaForCausalLM, LlamaConfig(
        **SIZES, hidden_size=64, intermediate_size=96, head_dim=64, tie_word_embeddings=True,
        rope_theta=10000.0,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                          high_freq_factor=4.0, original_max_position_embeddings=64)), torch.bfloat16
    yield "qwen2", Qwen2ForCausalLM, Qwen2Config(
        **SIZES, hidden_size=128, intermediate_size=160, tie_word_embeddings=False,
        rope_theta=1e6, use_sliding_window=False), torch.float16
    yield "mistral", MistralForCausalLM, MistralConfig(
        **SIZES, hidden_size=64, intermediate_size=96, head_dim=64, tie_word_embeddings=False,
        rope_theta=1e4, sliding_window=24), torch.float32
    yield "qwen3", Qwen3ForCausalLM, Qwen3Config(
        **SIZES, hidden_size=64, intermediate_size=96, head_dim=64, tie_word_embeddings=True,
        rope_theta=1e6, use_sliding_window=False), torch.bfloat16
    yield "linear", LlamaForCausalLM, LlamaConfig(
        **SIZES, hidden_size=64, intermediate_size=96, head_dim=64, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=1e4)), torch.float16
    # As Qwen2.5's model cards say it: the positions are those before the scaling.
    yield "yarn", Qwen2ForCausalLM, Qwen2Config(
        **{**SIZES, "max_position_embeddings": 64}, hidden_size=128, intermediate_size=160,
        tie_word_embeddings=False, use_sliding_window=False,
        rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                             beta_fast=4.0, rope_theta=1e4)), torch.float16
    yield "smollm3", SmolLM3ForCausalLM, SmolLM3Config(
        **{**SIZES, "num_hidden_layers": 4}, pad_token_id=1, hidden_size=64, intermediate_size=96, head_dim=64,
        tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=5e6)), torch.float16


def randomise(model):
    """Weights that make attention peaked and logits of the order of 5."""
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data = 1 + 0.2 * torch.randn_like(parameter)
        elif name.endswith("bias"):
            parameter.data = 0.5 * torch.randn_like(parameter)
        elif "embed" in name:
            parameter.data = torch.randn_like(parameter) * (0.6 if model.config.tie_word_embeddings
                                                            else 1.0)
        else:
            parameter.data = torch.randn_like(parameter) * (1.6 / parameter.shape[1] ** 0.5)


def save(model, folder, dtype):
    tensors = {name: p.detach().to(dtype).contiguous() for name, p in model.named_parameters()}
    if dtype != torch.bfloat16:
        save_file(tensors, folder / "model.safetensors")
        return
    # Two shards, as large models come.
    names = sorted(tensors)
    index = {}
    for shard, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{shard:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        index.update({name: file for name in part})
    text = json.dumps({"metadata": {}, "weight_map": index}, indent=1, sort_keys=True)
    (folder / "model.safetensors.index.json").write_text(text + "\n")


def rounded(logits):
    return [float(f"{x:.6g}") for x in logits.tolist()]


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    for number, (name, kind, config, dtype) in enumerate(families()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(100 + number)
        config._attn_implementation = "eager"
        model = kind(config).float().eval()
        randomise(model)
        for parameter in model.parameters():  # what the file holds
            parameter.data = parameter.data.to(dtype).float()
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        save(model, folder, dtype)
        kept = {key: value for key, value in config.to_diff_dict().items()
                if not key.startswith("_") and key not in ("transformers_version", "dtype")}
        kept["architectures"] = [kind.__name__]
        kept["torch_dtype"] = str(dtype).split(".")[1]
        (folder / "config.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        prompt = torch.randint(0, VOCAB, (100,)).tolist()
        tokens = torch.randint(0, VOCAB, (16,)).tolist()
        # The whole sequence at once: what a step gives must not depend on a cache.
        logits = model(torch.tensor([prompt + tokens]), use_cache=False).logits[0]
        golden = {"prompt": prompt, "tokens": tokens,
                  "logits": [rounded(row) for row in logits[len(prompt) - 1:]]}
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        for file in folder.iterdir():
            file.chmod(0o644)
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{name}: {size // 1024} KiB, largest logit {logits.abs().max():.2f}")


if __name__ == "__main__":
    main()

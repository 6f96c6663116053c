#!/usr/bin/env python3
"""Writes a model folder of a published shape with random bfloat16 weights, to measure whether such a model
fits a GPU and how fast it is. Needs PyTorch, a GPU makes it quick.

    make_random_model.py llama31-8b /tmp/model
    make_random_model.py deepseek-qwen-7b /tmp/model
    make_random_model.py --gsm8k 6000 /tmp/gsm8k.jsonl      # questions in GSM8K's form, for lengths and times

The tokenizer is recall-7m's: its ids are a part of the vocabulary, so prompts are as long as asked for, and
what the model says means nothing.
"""
import argparse
import json
import pathlib
import random
import shutil
import struct

SHAPES = {
    "llama31-8b": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 128256, "rope_theta": 500000.0, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "eos_token_id": 128009,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}},
    "deepseek-qwen-7b": {
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "vocab_size": 152064, "rope_theta": 10000.0, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "eos_token_id": 151643},
}
TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "experiments/models/recall-7m/tokenizer.json"


def tensors(shape):
    """Name and shape of each, in the order of the file."""
    hidden, mlp = shape["hidden_size"], shape["intermediate_size"]
    width = shape.get("head_dim", hidden // shape["num_attention_heads"])
    queries, keys = shape["num_attention_heads"] * width, shape["num_key_value_heads"] * width
    yield "model.embed_tokens.weight", (shape["vocab_size"], hidden)
    for layer in range(shape["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        for name, outputs in (("q", queries), ("k", keys), ("v", keys)):
            yield prefix + f"self_attn.{name}_proj.weight", (outputs, hidden)
            if "Qwen2" in shape["architectures"][0]:
                yield prefix + f"self_attn.{name}_proj.bias", (outputs,)
        yield prefix + "self_attn.o_proj.weight", (hidden, queries)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield prefix + "mlp.gate_proj.weight", (mlp, hidden)
        yield prefix + "mlp.up_proj.weight", (mlp, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, mlp)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (shape["vocab_size"], hidden)


def write_model(shape, folder):
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape, indent=1))
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    header, offset = {}, 0
    for name, size in tensors(shape):
        count = 2
        for extent in size:
            count *= extent
        header[name] = {"dtype": "BF16", "shape": list(size), "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, size in tensors(shape):
            if len(size) == 1 and not name.endswith("bias"):
                values = torch.ones(size, dtype=torch.bfloat16)
            else:  # activations stay near 1
                values = torch.empty(size, dtype=torch.bfloat16, device=device)
                # A model that was trained is sure of its words: logits are spread by 8, not by 1.
                values.normal_(0, size[-1] ** -0.5 * (8 if name.startswith("lm_head") else 1))
            file.write(memoryview(values.view(torch.int16).cpu().numpy()).cast("B"))


def write_questions(count, path):
    draw = random.Random(1)
    names, things = ["Ann", "Ben", "Cleo", "Dan", "Eve"], ["apples", "pencils", "stamps", "marbles"]
    with open(path, "w") as file:
        for i in range(count):
            a, b, c = (draw.randrange(2, 90) for _ in range(3))
            name, thing = draw.choice(names), draw.choice(things)
            question = (f"{name} has {a} {thing} and buys {b} boxes with {c} {thing} in each. On day {i} half of "
                        f"the boxes are given to a friend who already had {a + c}. How many {thing} do "
                        f"both of them have together at the end of that day?")
            answer = f"{a} + {b} * {c} + {a + c} is all.\n#### {a + b * c + a + c}"
            file.write(json.dumps({"question": question, "answer": answer}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", type=int, metavar="COUNT", help="write this many questions instead of a model")
    parser.add_argument("shape", nargs="?", choices=SHAPES)
    parser.add_argument("to", type=pathlib.Path)
    options = parser.parse_args()
    if options.gsm8k:
        write_questions(options.gsm8k, options.to)
    elif options.shape:
        write_model(SHAPES[options.shape], options.to)
    else:
        parser.error("name a shape, or --gsm8k")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/golden/gguf: what gguf-py makes of blocks of every type (blocks.json), and small
random models in one GGUF file each with Hugging Face's logits for them: a Llama (model.gguf,
golden.json) and a Qwen3 (qwen3.gguf, qwen3.json).

    python3 tests/golden/make_gguf_cases.py      (torch, transformers, gguf 0.19, numpy)

The Llama's matrices are of the types of small published files (Q4_1, Q8_0, Q4_0, F16, F32); its
positions are scaled by rope_freqs, its tokenizer is byte-level. The Qwen3's are of the other types
(Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K), its embeddings are tied. The same bytes whenever it runs;
the last digits of logits depend on transformers: golden.json is 4.46's, qwen3.json 4.53's.
"""
import json
import pathlib
import shutil

import gguf
import numpy
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

FOLDER = pathlib.Path(__file__).parent / "gguf"
BLOCKS = {Type.F32: (1, 4), Type.F16: (1, 2), Type.BF16: (1, 2), Type.Q4_0: (32, 18),
          Type.Q4_1: (32, 20), Type.Q8_0: (32, 34), Type.Q4_K: (256, 144), Type.Q6_K: (256, 210),
          Type.Q5_0: (32, 22), Type.Q5_1: (32, 24), Type.Q2_K: (256, 84), Type.Q3_K: (256, 110),
          Type.Q5_K: (256, 176)}
VOCAB, HIDDEN, HEADS, KV_HEADS, DIM, MLP, LAYERS = 288, 64, 2, 1, 64, 96, 2


def halves_at(kind):
    """Where a block has float16 numbers, which random bytes would often make NaN."""
    return {Type.Q4_0: [0], Type.Q8_0: [0], Type.Q4_1: [0, 2], Type.Q4_K: [0, 2],
            Type.Q6_K: [208], Type.F16: [0], Type.Q5_0: [0], Type.Q5_1: [0, 2],
            Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q5_K: [0, 2]}.get(kind, [])


def block_cases(rng):
    cases = []
    for kind, (elements, size) in BLOCKS.items():
        count = 3 if elements > 1 else 24
        data = rng.integers(0, 256, (count, size), dtype=numpy.uint8)
        for at in halves_at(kind):
            data[:, at:at + 2] = rng.normal(0, 0.1, count).astype(numpy.float16).view(
                numpy.uint8).reshape(count, 2)
        if kind == Type.F32:
            data = rng.normal(0, 1, count).astype(numpy.float32).view(numpy.uint8).reshape(count, 4)
        if kind == Type.BF16:
            data = (rng.normal(0, 1, count).astype(numpy.float32).view(numpy.uint32) >> 16).astype(
                numpy.uint16).view(numpy.uint8).reshape(count, 2)
        flat = data.reshape(-1)
        if kind == Type.F32:
            values = flat.view(numpy.float32)
        elif kind == Type.F16:
            values = flat.view(numpy.float16).astype(numpy.float32)
        else:
            values = dequantize(flat.reshape(1, -1), kind).reshape(-1)
        cases.append({"type": int(kind), "name": kind.name, "bytes": flat.tobytes().hex(),
                      "values": [float(f"{x:.9g}") for x in values]})
    return cases


def byte_characters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain}
    table.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [table[byte] for byte in range(256)]


def permuted(rows, heads):
    """As llama.cpp's converter puts the rows of queries and keys."""
    return rows.reshape(heads, 2, DIM // 2, -1).swapaxes(1, 2).reshape(rows.shape)


# llama.cpp's names of what Hugging Face calls so.
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "model.layers": "blk"}


def llama_cpp_name(name):
    for old, short in NAMES.items():
        name = name.replace(old, short)
    return name


def add_shape(writer, hidden, mlp):
    writer.add_context_length(512)
    writer.add_embedding_length(hidden)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(mlp)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(DIM)
    writer.add_value_length(DIM)
    writer.add_layer_norm_rms_eps(1e-5)


def add_tokenizer(writer, pre):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    tokens = ["<|endoftext|>", "<|im_start|>"] + byte_characters() + ["th", "the", "\u0120the", "in"]
    tokens += [f"<unused{i}>" for i in range(VOCAB - len(tokens))]
    kinds = [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * 260
    kinds += [gguf.TokenType.UNUSED] * (VOCAB - len(kinds))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h", "th e", "\u0120 the", "i n"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_golden(model, file):
    prompt = torch.randint(0, 262, (100,)).tolist()
    following = torch.randint(0, 262, (16,)).tolist()
    logits = model(torch.tensor([prompt + following]), use_cache=False).logits[0]
    golden = {"prompt": prompt, "tokens": following,
              "logits": [[float(f"{x:.6g}") for x in row.tolist()]
                         for row in logits[len(prompt) - 1:]]}
    (FOLDER / file).write_text(json.dumps(golden) + "\n")


def random_blocks(rng, kind, shape, spread):
    """Rows of whole blocks, random but for their scales: gguf-py does not make all types."""
    elements, size = BLOCKS[kind]
    count = shape[0] * shape[1] // elements
    data = rng.integers(0, 256, (count, size), dtype=numpy.uint8)
    # The middle of the codes is 0: twice the scale's mean, and the minimum's beside it.
    scale, minimum = {Type.Q5_0: (9.2, None), Type.Q5_1: (9.2, -15.5), Type.Q2_K: (9.7, 1.5),
                      Type.Q3_K: (42, None), Type.Q4_K: (170, 7.5), Type.Q5_K: (340, 15.5),
                      Type.Q6_K: (1370, None)}[kind]
    for at, factor in zip(halves_at(kind), (1, minimum)):
        data[:, at:at + 2] = numpy.full(count, factor * spread / scale, numpy.float16).view(
            numpy.uint8).reshape(count, 2)
    data = data.reshape(shape[0], -1)
    return data, dequantize(data, kind)


@torch.no_grad()
def write_qwen3():
    torch.manual_seed(8)
    rng = numpy.random.default_rng(8)
    hidden, mlp = 256, 256
    config = Qwen3Config(vocab_size=VOCAB, hidden_size=hidden, intermediate_size=mlp,
                         num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                         num_key_value_heads=KV_HEADS, head_dim=DIM, max_position_embeddings=512,
                         rms_norm_eps=1e-5, rope_theta=1e6, tie_word_embeddings=True)
    config._attn_implementation = "eager"
    model = Qwen3ForCausalLM(config).float().eval()
    writer = gguf.GGUFWriter(FOLDER / "qwen3.gguf", "qwen3")
    add_shape(writer, hidden, mlp)
    writer.add_rope_freq_base(1e6)
    add_tokenizer(writer, "qwen2")
    types = {"token_embd": Type.Q5_K, "attn_q": Type.Q3_K, "attn_k": Type.Q4_K,
             "attn_v": Type.Q5_1, "attn_output": Type.Q5_0, "ffn_gate": Type.Q2_K,
             "ffn_up": Type.Q6_K, "ffn_down": Type.Q5_K}
    for name, parameter in model.named_parameters():
        new = llama_cpp_name(name)
        if name.endswith("norm.weight"):
            kept = (1 + 0.2 * torch.randn_like(parameter)).numpy().astype(numpy.float32)
            writer.add_tensor(new, kept)
        else:
            kind = next(t for part, t in types.items() if part in new)
            spread = 0.3 if "embed" in name else 1.6 / parameter.shape[1] ** 0.5
            data, kept = random_blocks(rng, kind, tuple(parameter.shape), spread)
            writer.add_tensor(new, data, raw_dtype=kind)
            print(f"{new}: {kind.name}, mean {kept.mean():.3g}, deviation {kept.std():.3g} of {spread:.3g}")
        parameter.data = torch.from_numpy(numpy.ascontiguousarray(kept))
    close(writer)
    write_golden(model, "qwen3.json")


@torch.no_grad()
def write_llama():
    torch.manual_seed(7)
    scaling = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=MLP,
                         num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                         num_key_value_heads=KV_HEADS, head_dim=DIM, max_position_embeddings=512,
                         rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=scaling,
                         tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).float().eval()

    writer = gguf.GGUFWriter(FOLDER / "model.gguf", "llama")
    add_shape(writer, HIDDEN, MLP)
    writer.add_rope_freq_base(10000.0)
    add_tokenizer(writer, "smollm")
    types = {"token_embd": Type.Q8_0, "output": Type.F16, "attn_v": Type.Q4_0, "ffn_down": Type.F32,
             "norm": Type.F32}
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            values = 1 + 0.2 * torch.randn_like(parameter)
        else:
            values = torch.randn_like(parameter) * (
                1.0 if "embed" in name else 1.6 / parameter.shape[1] ** 0.5)
        new = llama_cpp_name(name)
        kind = next((t for part, t in types.items() if part in new), Type.Q4_1)
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
        array = values.numpy().astype(numpy.float32)
        stored = permuted(array, heads) if heads else array
        if kind == Type.F32:
            kept, data = stored, stored
        elif kind == Type.F16:
            data = stored.astype(numpy.float16)
            kept = data.astype(numpy.float32)
        else:
            data = quantize(stored, kind)
            kept = dequantize(data, kind)
        if kind in (Type.F32, Type.F16):
            writer.add_tensor(new, data)
        else:
            writer.add_tensor(new, data, raw_dtype=kind)
        if heads:  # back to Hugging Face's order
            kept = kept.reshape(heads, DIM // 2, 2, -1).swapaxes(1, 2).reshape(kept.shape)
        parameter.data = torch.from_numpy(numpy.ascontiguousarray(kept))
    base = 10000.0 ** (-numpy.arange(0, DIM, 2) / DIM)
    scaled = model.model.rotary_emb.inv_freq.numpy()
    writer.add_tensor("rope_freqs.weight", (base / scaled).astype(numpy.float32))
    close(writer)
    write_golden(model, "golden.json")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    rng = numpy.random.default_rng(5)
    (FOLDER / "blocks.json").write_text(json.dumps(block_cases(rng)) + "\n")
    torch.set_num_threads(1)
    write_llama()
    write_qwen3()
    for file in FOLDER.iterdir():
        file.chmod(0o644)
        print(file.name, file.stat().st_size)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes fuzz-model-files_seed_corpus.zip: small files of a model folder, whole ones and damaged ones, from
which fuzz-model-files starts. The first byte says which file it is (model_files.h).

    python3 tests/fuzz/make_model_files.py
"""
import json
import struct

import pack

MARK = "\u2581"


def byte_characters():
    """GPT-2's alphabet: byte -> character."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain}
    table.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [table[byte] for byte in range(256)]


def tokenizer(model, **other):
    parts = {"added_tokens": [], "normalizer": None, "pre_tokenizer": None, "decoder": None}
    added = {"id": len(model["vocab"]), "content": "<s>", "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
    return {**parts, "added_tokens": [added], **other, "model": {"type": "BPE", **model}}


def byte_level(regex):
    vocab = {character: i for i, character in enumerate(byte_characters())}
    vocab.update({"th": 256, "the": 257, "\u0120the": 258, "in": 259})
    merges = ["t h", "th e", "\u0120 the", "i n"]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": regex is None}
    steps = step if regex is None else {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
        step]}
    return tokenizer({"vocab": vocab, "merges": merges}, pre_tokenizer=steps, decoder=step)


def metaspace(**other):
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab.update({token: 256 + i for i, token in enumerate([MARK, "t", "h", "e", "th", MARK + "th"])})
    return tokenizer({"vocab": vocab, "merges": [["t", "h"], [MARK, "th"]], "byte_fallback": True},
                     **other)


def safetensors(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 128,
          "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
          "max_position_embeddings": 512, "rms_norm_eps": 1e-5}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_theta": 5e5}


def deep(levels):
    """A value that only copying by recursion would stumble over."""
    return "[" * levels + "]" * levels


def deep_files():
    config = json.dumps(CONFIG)[:-1]
    yield "refused-deep-eos", "c", config + ', "eos_token_id": ' + deep(9000) + "}"
    yield "accepted-nested", "c", config + ', "comment": ' + deep(60) + "}"
    yield "refused-width", "c", json.dumps({**CONFIG, "hidden_size": 72, "head_dim": 64})
    yield "accepted-positions", "c", json.dumps({**CONFIG, "max_position_embeddings": 1 << 26})
    whole = json.dumps(byte_level(None))
    yield "refused-deep-normalizer", "t", whole.replace('"normalizer": null',
                                                        '"normalizer": ' + deep(9000))
    yield "refused-deep-template", "j", '{"chat_template": ' + deep(9000) + "}"
    yield "refused-deep-header", "s", safetensors(('{"a": ' + deep(9000) + "}").encode(), bytes(24))


def index_files():
    yield "accepted-index", "i", json.dumps({"weight_map": {"a": "1.safetensors"}})
    yield "refused-index-path", "i", json.dumps({"weight_map": {"a": "../1.safetensors"}})
    yield "refused-index-tensor", "i", json.dumps({"weight_map": {"b": "1.safetensors"}})
    yield "refused-deep-index", "i", '{"weight_map": ' + deep(9000) + "}"


def files():
    yield from deep_files()
    yield from index_files()
    yield "accepted-bytes", "t", json.dumps(byte_level(None))
    yield "accepted-regex", "t", json.dumps(byte_level(r" ?\p{L}+|\p{N}{1,3}|\s+(?!\S)|[^\s\p{L}]"))
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": MARK},
        {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    yield "accepted-llama2", "t", json.dumps(metaspace(normalizer=normalizer))
    yield "accepted-mistral", "t", json.dumps(metaspace(pre_tokenizer={
        "type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}))
    kinds = ("single_word", "lstrip", "rstrip", "normalized")
    added = [{"id": 262 + i, "content": content, kind: True, "special": i == 0}
             for i, (content, kind) in enumerate(zip(("<s>", "the", "\U0001f642", " in"), kinds))]
    yield "accepted-added", "t", json.dumps({**metaspace(normalizer=normalizer),
                                             "added_tokens": added})
    yield "refused-no-spaces", "t", json.dumps(metaspace())
    yield "refused-cut", "t", json.dumps(byte_level(None))[:1000]
    yield "refused-pattern", "t", json.dumps(byte_level(r"(\w"))
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": single,
                "special_tokens": {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}}}
    chain = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]}
    nfc = {**byte_level(None), "normalizer": {"type": "NFC"}}
    yield "accepted-bos", "t", json.dumps({**nfc, "post_processor": chain})
    template = {**template, "special_tokens": {"<s>": {"ids": [261]}}}
    yield "refused-bos", "t", json.dumps({**nfc, "post_processor": template})
    yield from chat_files()
    both = {"a": tensor("F32", [2, 3], 0, 24), "b": tensor("BF16", [2, 3], 24, 36),
            "c": tensor("F16", [4], 36, 44), "__metadata__": {"format": "pt"}}
    yield "accepted-tensors", "s", safetensors(both, bytes(44))
    overlap = {"a": tensor("F32", [2, 3], 0, 24), "b": tensor("BF16", [2, 3], 12, 24)}
    yield "refused-overlap", "s", safetensors(overlap, bytes(24))
    yield "refused-short", "s", safetensors(both, bytes(40))
    huge = {"a": tensor("F32", [1 << 40, 1 << 40], 0, 24)}
    yield "refused-huge", "s", safetensors(huge, bytes(24))
    yield "refused-length", "s", struct.pack("<Q", 1 << 62) + b"{}"
    yield "accepted-llama", "c", json.dumps({**CONFIG, "rope_scaling": LLAMA3})
    yield "accepted-qwen2", "c", json.dumps({**CONFIG, "architectures": ["Qwen2ForCausalLM"]})
    yield "accepted-qwen3", "c", json.dumps({**CONFIG, "architectures": ["Qwen3ForCausalLM"],
                                             "num_attention_heads": 3, "use_sliding_window": False})
    yield "refused-qwen3-window", "c", json.dumps({
        **CONFIG, "architectures": ["Qwen3ForCausalLM"], "use_sliding_window": True})
    yield "accepted-window", "c", json.dumps({**CONFIG, "architectures": ["MistralForCausalLM"],
                                              "sliding_window": 24, "eos_token_id": [1, 2]})
    yield "refused-heads", "c", json.dumps({**CONFIG, "num_attention_heads": 0})
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1 << 26}
    yield "accepted-yarn", "c", json.dumps({**CONFIG, "rope_scaling": yarn})
    yield "refused-yarn", "c", json.dumps({**CONFIG, "rope_scaling": {**yarn, "beta_fast": 1}})
    yield "accepted-smollm3", "c", json.dumps({
        **CONFIG, "architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1, 0]})
    yield "refused-smollm3-layers", "c", json.dumps({
        **CONFIG, "architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1]})


def chat_files():
    ml = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
          "'<|im_end|>\n' }}{% endfor %}")
    yield "accepted-qwen3-chat", "j", json.dumps({"chat_template": ml + (
        "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}")})
    yield "accepted-no-template", "j", json.dumps({"bos_token": "<s>", "add_bos_token": True})
    yield "accepted-chatml", "j", json.dumps({"chat_template": ml})
    yield "accepted-llama-3", "j", json.dumps({
        "chat_template": "{{ '<|start_header_id|>' + messages[0].role + '<|end_header_id|><|eot_id|>' }}"})
    yield "accepted-templates", "j", json.dumps({"chat_template": [
        {"name": "tool_use", "template": ""},
        {"name": "default", "template": "{{ '<｜User｜>' + messages[0].content + '<｜Assistant｜><think>' }}"}]},
        ensure_ascii=False)
    yield "accepted-inst", "j", json.dumps({"chat_template": '{{ "[INST] " + messages[0].content + "[/INST]" }}'})
    yield "accepted-jinja", "w", ml
    yield "refused-jinja", "w", "{% if tools %}{% for" * 400 + "<|im_start|>"
    yield "accepted-system", "j", json.dumps({"chat_template": "<|im_start|>system\nBe brief" + ml})
    yield "accepted-marks-alone", "j", json.dumps({"chat_template": "<|user|>"})
    yield "accepted-jinja-parts", "w", (
        "{%- macro f(a, b=1) -%}{{ a ~ b }}{%- endmacro -%}{% set ns = namespace(x=[]) %}{# c #}"
        "{% for m in messages if m.role != 'x' %}{% set ns.x = ns.x + [m.content | trim] %}{{ loop.index0 % 2 }}"
        "{{ loop.previtem is defined }}{% if loop.last %}{% break %}{% endif %}{% endfor %}{% set y %}a{% endset %}"
        "{% for k, v in {2: 'b', 1: 'a'} | dictsort %}{{ '{}:{}'.format(k, v) }}{% endfor %}"
        "{{ f('a', b=ns.x[::-1] | join(',')) ~ (messages | selectattr('role', 'equalto', 'user') | list | length) "
        "~ ({'k': none, 'l': (1, true)} | tojson) ~ 'a-b'.split('-')[1:] ~ (y is string) }}"
        "{% generation %}{{ tools is none and 'a' in 'abc' or not missing is defined }}{% endgeneration %}"
        "{% for i in range(3) %}{{ i - 1 if i else missing | default('d') }}{% endfor %}"
        "{{ messages[0].get('name', 'n').upper().lstrip('n') | lower | replace('a', 'b') | string }}")
    yield "refused-jinja-filter", "w", "{{ messages | nothing }}"
    yield "refused-jinja-raise", "w", "{{ raise_exception('no') }}"
    yield "refused-jinja-loops", "w", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    yield "refused-jinja-macro", "w", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
    yield "refused-templates", "j", json.dumps({"chat_template": [{"name": "default"}]})
    yield "refused-bos-token", "j", json.dumps({"add_bos_token": True, "bos_token": {"content": 1}})


def gguf_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    kind = 8 if isinstance(value[0], str) else 6 if isinstance(value[0], float) else 5
    pack = {8: gguf_text, 6: lambda x: struct.pack("<f", x), 5: lambda x: struct.pack("<i", x)}[kind]
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(pack(x) for x in value)


def gguf(metadata, kind, data, shape=(256, 1)):
    """One tensor t of 256 numbers, or of another shape."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(metadata))
    for key, value in metadata.items():
        out += gguf_text(key) + gguf_value(value)
    out += gguf_text("t") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    return out + bytes(-len(out) % 32) + data


LLAMA = {"general.architecture": "llama", "llama.embedding_length": 128,
         "llama.feed_forward_length": 64, "llama.block_count": 2, "llama.attention.head_count": 2,
         "llama.context_length": 512, "llama.attention.layer_norm_rms_epsilon": 1e-5}


def gguf_files():
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", "<s>"] + bytes_of + [MARK, "t", "h", "th", MARK + "th"]
    yield "accepted-pieces", "g", gguf({
        **LLAMA, "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [2, 3] + [6] * 256 + [1] * 5,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(pieces))]}, 12, bytes(144))
    tokens = ["<s>"] + byte_characters() + ["th", "the"]
    yield "accepted-gpt2", "g", gguf({
        **LLAMA, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3] + [1] * 258,
        "tokenizer.ggml.merges": ["t h", "th e"], "tokenizer.ggml.bos_token_id": 0}, 14, bytes(210))
    yield "accepted-llama-bpe", "g", gguf({
        **LLAMA, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens + ["<|im_start|>", "<|im_end|>"],
        "tokenizer.ggml.token_type": [3] + [1] * 258 + [3, 3],
        "tokenizer.ggml.merges": ["t h", "th e"], "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.chat_template": "<|im_start|>user<|im_end|>"}, 14, bytes(210))
    # Sound as GGUF, whatever is said of the model in them.
    sound = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0] * 264}
    yield "accepted-gguf-long-piece", "g", gguf({
        **LLAMA, **sound, "tokenizer.ggml.tokens": pieces + ["th" * 4500],
        "tokenizer.ggml.token_type": [2, 3] + [6] * 256 + [1] * 6}, 0, bytes(1024))
    for key, number in (("llama.embedding_length", 72), ("llama.context_length", 1 << 26),
                        ("tokenizer.ggml.bos_token_id", 4000)):
        yield f"accepted-gguf-{key.split('.')[-1].replace('_', '-')}", "g", gguf({
            **LLAMA, **sound, "tokenizer.ggml.tokens": pieces + ["e"],
            "tokenizer.ggml.token_type": [2, 3] + [6] * 256 + [1] * 6, key: number}, 0, bytes(1024))
    # Q5_0, Q5_1, Q2_K, Q3_K, Q5_K.
    for kind, size in ((6, 8 * 22), (7, 8 * 24), (10, 84), (11, 110), (13, 176)):
        yield f"accepted-gguf-type-{kind}", "g", gguf(LLAMA, kind, bytes(range(size)))
        yield f"refused-gguf-type-{kind}", "g", gguf(LLAMA, kind, bytes(size - 1))
    yield "refused-gguf-cut", "g", gguf(LLAMA, 0, bytes(1000))
    yield "refused-gguf-rows", "g", gguf(LLAMA, 2, bytes(100))
    yield "refused-gguf-size-of-0", "g", gguf(LLAMA, 0, b"", (0, 1 << 40, 1 << 40))


def main():
    inputs = {}
    for name, kind, content in [*files(), *gguf_files()]:
        bytes_of = content.encode() if isinstance(content, str) else content
        inputs[name] = kind.encode() + bytes_of
    pack.pack(inputs, "fuzz-model-files")


if __name__ == "__main__":
    main()

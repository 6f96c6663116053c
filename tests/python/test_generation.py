"""allot's attention in models of transformers: tokens of dense attention are transformers' own, learned
schedules are applied layer by layer, and what does not fit is refused."""

import copy
import json
import os
import tempfile

import torch

import allot
from allot.schedules import weights_digest
from devices import DEVICES
from outcomes import refusal, skip

try:
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError:
    AutoModelForCausalLM = None

MODELS = os.path.join(os.path.dirname(__file__), "..", "..", "experiments", "models")
RECALL = os.path.join(MODELS, "recall-7m")
SMOLLM2, SMOLLM2_FILE = os.path.join(MODELS, "smollm2"), "SmolLM2-135M-Instruct.Q4_1.gguf"
NO_TRANSFORMERS = "transformers is not installed: pip install 'transformers>=5.17,<6'"


def recall(device):
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    return AutoModelForCausalLM.from_pretrained(RECALL, dtype=dtype).to(device).eval()


def smollm2():
    """SmolLM2-135M-Instruct with its tokenizer, and in place of them why not."""
    if not os.path.exists(os.path.join(SMOLLM2, SMOLLM2_FILE)):
        return None, None, "SmolLM2 is not here: ./run smollm2 fetches it"
    try:
        model = AutoModelForCausalLM.from_pretrained(
            SMOLLM2, gguf_file=SMOLLM2_FILE, dtype=torch.float32
        ).eval()
        return model, AutoTokenizer.from_pretrained(SMOLLM2, gguf_file=SMOLLM2_FILE), None
    except (ImportError, ValueError) as error:
        return None, None, f"transformers reads no GGUF file here: {error}"


def recall_prompts():
    with open(os.path.join(RECALL, "golden.json"), encoding="utf-8") as file:
        return [torch.tensor([one["prompt_ids"]]) for one in json.load(file)["logits"]]


def answer(model, ids, tokens=12, mask=None, **options):
    mask = torch.ones_like(ids) if mask is None else mask
    return model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=tokens,
        min_new_tokens=tokens, pad_token_id=2, **options,
    )


def compare(model, attention, prompts, tie):
    """Prompts whose tokens differ from transformers' own beyond a tie: at the first token that
    differs, the two logits are further apart than `tie`."""
    wrong = ties = 0
    for ids in prompts:
        model.set_attn_implementation("sdpa")
        own = answer(model, ids)
        model.set_attn_implementation("allot")
        ours = answer(model, ids, past_key_values=attention.cache())
        if torch.equal(own, ours):
            continue
        place = int((own != ours)[0].nonzero()[0])
        model.set_attn_implementation("sdpa")
        with torch.no_grad():
            logits = model(own[:, :place]).logits[0, -1].float()
        gap = (logits[own[0, place]] - logits[ours[0, place]]).abs().item()
        ties, wrong = ties + 1, wrong + (gap > tie)
    return wrong, ties


def test_dense_tokens_are_transformers_own():
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    for device in DEVICES:
        model = recall(device)
        attention = allot.attention(model, "dense")
        prompts = [ids.to(device) for ids in recall_prompts()]
        wrong, ties = compare(model, attention, prompts, 1e-3 if device == "cpu" else 0.3)
        print(f"recall-7m on {device}: {len(prompts)} prompts, {ties} with a tie")
        assert wrong == 0


def test_dense_tokens_of_smollm2_are_transformers_own():
    """40 prompts of text, SmolLM2-135M-Instruct; `./run smollm2` fetches it."""
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    model, tokenizer, why = smollm2()
    if why:
        return skip(why)
    subjects = ["a river", "the moon", "an old book", "two friends", "a small town", "winter",
                "the number seven", "a lost key", "bread", "a long train"]
    forms = ["Write one sentence about {}.", "What is {} good for?", "A story of {} begins so:",
             "List three facts on {}, the first of which everybody knows:"]
    prompts = [
        torch.tensor([tokenizer(form.format(subject))["input_ids"]])
        for subject in subjects for form in forms
    ]
    wrong, ties = compare(model, allot.attention(model, "dense"), prompts, 1e-3)
    print(f"SmolLM2: {len(prompts)} prompts, {ties} with a tie")
    assert wrong == 0


def test_rows_do_not_depend_on_their_batch():
    """Prompts of several lengths, padded on the left, give what each gives alone, draws and all."""
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    for device in DEVICES:
        model = recall(device)
        attention = allot.attention(model, "s2anta-sys", [3, 2, 0, 0, 3, 0, 0, 0], seed=5)
        prompts = [ids[:, -n:].to(device) for ids, n in zip(recall_prompts(), (200, 150, 77))]
        longest = max(ids.shape[1] for ids in prompts)
        padded = torch.full((3, longest), 2, device=device)
        mask = torch.zeros_like(padded)
        for row, ids in enumerate(prompts):
            padded[row, longest - ids.shape[1]:] = ids
            mask[row, longest - ids.shape[1]:] = 1
        together = answer(model, padded, mask=mask, past_key_values=attention.cache([7, 8, 9]))
        same = 0
        for row, ids in enumerate(prompts):
            alone = answer(model, ids, past_key_values=attention.cache([7 + row]))
            same += torch.equal(alone[0, -12:], together[row, -12:])
        # On a GPU products of matrices round by the size of the batch.
        assert same == 3 or device == "cuda", same


def test_a_learned_schedule_is_applied_layer_by_layer():
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    model, ids = recall("cpu"), recall_prompts()[0]
    policy = {"total_budget": 8, "learned_schedule": [3, 2, 0, 0, 3, 0, 0, 0], "frontier": [
        {"total_budget": 8, "learned_schedule": [3, 2, 0, 0, 3, 0, 0, 0]},
        {"total_budget": 16, "learned_schedule": [5, 4, 1, 0, 4, 1, 1, 0]}]}
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "policy.json"), "w", encoding="utf-8") as file:
            json.dump(policy, file)
        for total, row in ((None, policy["frontier"][0]), (16, policy["frontier"][1])):
            drawn = torch.zeros(8, dtype=torch.int64)

            def observe(layer, step, bits):
                each = sum(bin(word & (1 << 64) - 1).count("1") for word in bits.flatten().tolist())
                drawn[layer] = max(drawn[layer], each)

            attention = allot.attention(model, "santa", folder, total_budget=total, seed=1)
            answer(model, ids, past_key_values=attention.cache(observer=observe))
            for layer, draws in enumerate(row["learned_schedule"]):
                assert (drawn[layer] > 0) == (draws > 0) and drawn[layer] <= 8 * draws
        assert "8, 16, not for 9" in refusal(lambda: allot.read_schedule(folder, 9))
        # The policy of another model: by the digest of its weights, and by layers where it has none.
        for made_for, fits in (({"weights_sha256": "0" * 64, "layers": 8}, False), ({"layers": 9}, False),
                               ({"layers": 8}, True), ({"weights_sha256": weights_digest(RECALL)}, True)):
            with open(os.path.join(folder, "policy.json"), "w", encoding="utf-8") as file:
                json.dump({**policy, "model": made_for}, file)
            if fits:
                allot.attention(model, "santa", folder)
            else:
                sentence = refusal(lambda: allot.attention(model, "santa", folder))
                assert "was made for another model" in sentence and "any_model=True" in sentence
            allot.attention(model, "santa", folder, any_model=True)
    attention = allot.attention(model, "s2anta-sys", policy["learned_schedule"])
    cache = attention.cache(statistics=True)
    answer(model, ids, past_key_values=cache)
    reads = cache.reads()
    # Three layers of eight read their keys.
    assert reads["draws"] == 11 * 8 * 8 and reads["key_bytes"] == reads["dense_bytes"] * 3 // 16


def test_methods_of_prompts():
    """Blocks, query by query, and in chunks; what keeps everything gives dense attention's tokens."""
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    for device in DEVICES:
        model, ids = recall(device), recall_prompts()[0].to(device)
        dense = answer(model, ids)
        methods = ["sale tau=1e-06", "sample-attention alphaColumn=1 alphaSlash=1", "sampled-blocks",
                   "skip-softmax threshold=1e-12"]
        for prefill in methods + (["s2anta-sys"] if device == "cpu" else []):
            attention = allot.attention(model, "dense", prefill=prefill)
            cache = attention.cache()
            assert torch.equal(answer(model, ids, past_key_values=cache), dense), (device, prefill)
            cache.check()
        attention = allot.attention(model, "dense")
        chunks = answer(model, ids, past_key_values=attention.cache(), prefill_chunk_size=100)
        assert torch.equal(chunks, dense), device


def test_zero_reads():
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    model, ids = recall("cpu"), recall_prompts()[0]
    outs = {}
    for zero_reads in ("off", "mean-value", "window"):
        attention = allot.attention(model, "s2anta-sys", [0] * 8, zero_reads=zero_reads)
        outs[zero_reads] = answer(model, ids, past_key_values=attention.cache())
    attention = allot.attention(model, "dense", [0] * 8, zero_reads="window")
    again = answer(model, ids, past_key_values=attention.cache())
    assert torch.equal(again, outs["window"])
    assert not torch.equal(outs["off"], outs["window"])


def test_what_does_not_fit_is_refused():
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    model, ids = recall("cpu"), recall_prompts()[0]
    assert "no such method" in refusal(lambda: allot.attention(model, "s2anta"))
    assert "does not fit the model's 8 layers" in refusal(
        lambda: allot.attention(model, "santa", [1, 2, 3])
    )
    assert "zero_reads" in refusal(lambda: allot.attention(model, zero_reads="on"))
    model.config.layer_types = ["chunked_attention"] * 8
    assert "layers of chunked_attention" in refusal(lambda: allot.attention(model, "dense"))
    del model.config.layer_types
    for wrong in ([-3] * 8, [1.5] * 8, ["a"] * 8, [2**32 + 3] * 8):
        assert "0 to 4294967295" in refusal(lambda: allot.attention(model, "santa", wrong))
        assert "0 to 4294967295" in refusal(
            lambda: allot.attention(model, prefill="s2anta-sys", prefill_schedule=wrong)
        )
    for wrong in (0, -1):
        assert f"page_size = {wrong}" in refusal(
            lambda: allot.attention(model, "dense", page_size=wrong)
        )
    attention = allot.attention(model, "dense")
    assert "past_key_values=attention.cache()" in refusal(lambda: answer(model, ids))
    cache = attention.cache([1, 2])
    assert "names for 2 rows" in refusal(lambda: answer(model, ids, past_key_values=cache))
    cache = attention.cache()
    answer(model, ids, past_key_values=cache)
    two = torch.cat([ids, ids])
    assert "another batch" in refusal(lambda: model(two, past_key_values=cache))
    assert "one by one" in refusal(lambda: model(ids, past_key_values=cache))
    mask = torch.ones_like(ids)
    mask[0, 20] = 0
    gap = refusal(lambda: answer(model, ids, mask=mask, past_key_values=attention.cache()))
    assert "padded on the left" in gap
    padded = refusal(lambda: answer(model, ids, mask=mask * 0, past_key_values=attention.cache()))
    assert "row 0 of the attention mask keeps no position" in padded
    square = torch.ones(1, 1, ids.shape[1], ids.shape[1])
    assert "[rows, positions]" in refusal(
        lambda: model(ids, attention_mask=square, past_key_values=attention.cache())
    )
    for call in (
        lambda cache: cache.crop(10),
        lambda cache: cache.batch_repeat_interleave(2),
        lambda cache: cache.batch_select_indices(torch.tensor([0])),
        lambda cache: cache.reorder_cache(torch.tensor([0])),
        lambda cache: cache.reset(),
    ):
        assert "allot: " in refusal(lambda: call(attention.cache()))


def test_a_copied_cache_goes_on_by_itself():
    """As transformers' own: a prompt is read once, and its cache copied for each answer."""
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    for device in DEVICES:
        model, ids = recall(device), recall_prompts()[0].to(device)
        attention = allot.attention(model, "s2anta-sys", [3, 2, 0, 0, 3, 0, 0, 0], seed=2)
        alone = answer(model, ids, past_key_values=attention.cache())
        cache = attention.cache()
        with torch.no_grad():
            model(ids[:, :-1], past_key_values=cache)
        copies = [copy.deepcopy(cache) for _ in range(2)]
        outs = [answer(model, ids, past_key_values=one) for one in copies]
        del copies
        outs.append(answer(model, ids, past_key_values=cache))
        assert all(torch.equal(outs[0], out) for out in outs[1:]), device
        # A prompt's last token is a step of its own here, and has draws.
        assert outs[0].shape == alone.shape

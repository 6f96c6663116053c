"""SmolLM2 in transformers against the worker on the same weights: which keys each draws for the same
question, seed and step. tests/golden/smollm2_draws.json is the worker's side.

Bit for bit the same queries, keys and values give the same draws: test_golden.py holds the operators to
that. Here the two sides compute them: PyTorch's products and transformers' angles of positions, which
are taken in float32, differ from the worker's by some 6e-6 (the angles) and 1e-6 (the products). So a
draw falls on another key where a threshold is that close, and s2anta-q4 weighs a key anew where a code
of its shadow is that close to the next. Each such head is looked into: queries and keys moved at random
by no more than the two sides are apart have to give the worker's set of keys and the worker's output.
What they give is then put in place, so that whatever comes after it is compared, too."""

import json
import os

import torch

import allot
from test_generation import AutoModelForCausalLM, NO_TRANSFORMERS, answer, smollm2
from test_golden import GOLDEN, keys_of
from outcomes import skip

APART = 1e-5  # of a query or key, relative: what the two sides may differ by
TRIES = 1000  # most need one to ten
TENSORS = ("keys", "values", "codes", "scales", "mean_keys")

if AutoModelForCausalLM is not None:
    from allot import paged_cache
    from allot.operators import decode_attention


class BesideTheWorker:
    """Stands for decode_attention: what it draws is held against the worker's answer."""

    def __init__(self, answer, attention):
        self.worker = {(step["layer"], step["step"]): step for step in answer["steps"]}
        self.queries = {one["layer"]: one["queries"] for one in answer["queries"]}
        self.prompt, self.owner = len(answer["prompt_ids"]), attention
        self.group = attention.heads // attention.kv_heads
        self.noise = torch.Generator().manual_seed(1)
        self.sets = self.same = self.moved = 0

    def __call__(self, queries, cache, page_table, lengths, *rest, **options):
        out, lse = decode_attention(queries, cache, page_table, lengths, *rest, **options)
        place = options["layer"], int(rest[2][0])
        self.expect_queries(place, queries[0])
        worker = self.worker[place]
        pairs = list(zip(keys_of(options["drawn"]), worker["rows"], strict=True))
        self.sets += len(pairs)
        self.same += sum(ours == theirs for ours, theirs in pairs)
        groups = self.unlike(worker, out[0], options["drawn"])
        pages = page_table[0].long()
        for _ in range(TRIES if groups else 0):
            near = self.moved_cache(cache, pages, int(lengths[0]), rest[-1])
            drawn = torch.zeros_like(options["drawn"])
            table = torch.arange(len(pages), dtype=torch.int32)[None]
            moved, _ = decode_attention(
                self.move(queries), near, table, lengths, *rest, **{**options, "drawn": drawn}
            )
            found = groups - self.unlike(worker, moved[0], drawn)
            for group in found:
                heads = slice(group * self.group, (group + 1) * self.group)
                out[:, heads] = moved[:, heads]
                for name in TENSORS:
                    if getattr(near, name).numel():
                        getattr(cache, name)[pages, group] = getattr(near, name)[:, group]
            self.moved += len(found)
            groups -= found
            if not groups:
                break
        assert not groups, f"layer and step {place}, KV heads {groups}: no draw of the worker's"
        return out, lse

    def expect_queries(self, place, queries):
        """Of the first step, where the file has them: no further apart than APART."""
        layer, step = place
        if step == 1 and layer in self.queries:
            theirs = torch.tensor(self.queries[layer]).view_as(queries)
            apart = (queries - theirs).norm(dim=-1) / theirs.norm(dim=-1)
            print(f"queries of layer {layer} differ by {apart.max():.1e}")
            assert apart.max() < APART

    def unlike(self, worker, out, drawn):
        """KV heads with a head that drew other keys than the worker's, or the same ones otherwise
        often, which its output tells."""
        size = out.norm(dim=-1) / out.shape[-1] ** 0.5
        return {
            head // self.group
            for head, keys in enumerate(keys_of(drawn))
            if keys != worker["rows"][head]
            or abs(out[head, 0] - worker["first_channels"][head]) > 1e-6 + 5e-5 * size[head]
        }

    def move(self, x):
        size = x.norm(dim=-1, keepdim=True) / x.shape[-1] ** 0.5
        return x + APART * size * torch.randn(x.shape, generator=self.noise)

    def moved_cache(self, cache, pages, length, workspace):
        """The row's keys moved, its values as they are, appended as the model did: the prompt, then
        one by one."""
        owner = self.owner
        near = allot.make_cache(
            len(pages), owner.kv_heads, owner.page_size, owner.head_dim, shadow_bits=owner.shadow_bits
        )
        keys, values = (
            tensor[pages].transpose(1, 2).flatten(0, 1)[None, :length]
            for tensor in (cache.keys, cache.values)
        )
        keys, table = self.move(keys), torch.arange(len(pages), dtype=torch.int32)[None]
        ends = [0, *range(self.prompt, length + 1)]
        for begin, end in zip(ends, ends[1:]):
            part = (x[:, begin:end].contiguous() for x in (keys, values))
            allot.append_kv(*part, near, table, allot.words([begin]), workspace)
        return near


def test_smollm2_draws_the_workers_keys():
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    model, _, why = smollm2()
    if why:
        return skip(why)
    with open(os.path.join(GOLDEN, "smollm2_draws.json"), encoding="utf-8") as file:
        golden = json.load(file)
    assert len(golden["answers"]) == 6
    for one in golden["answers"]:
        attention = allot.attention(model, one["method"], one["schedule"], seed=golden["seed"])
        # An observer, so that steps tell what they draw.
        cache = attention.cache(
            [allot.evaluation_sequence(one["question"])], observer=lambda layer, step, bits: None
        )
        beside = BesideTheWorker(one, attention)
        paged_cache.decode_attention = beside
        try:
            ids = torch.tensor([one["prompt_ids"]])
            out = answer(model, ids, len(one["tokens"]), past_key_values=cache)
        finally:
            paged_cache.decode_attention = decode_attention
        print(
            f"question {one['question']}, {one['method']}: {beside.same} of {beside.sets} sets of keys "
            f"are the worker's; {beside.moved} times a KV head's queries and keys had to be moved"
        )
        assert out[0, ids.shape[1] :].tolist() == one["tokens"]
        assert beside.sets == 3 * 30 * 9
        assert beside.same >= 0.95 * beside.sets

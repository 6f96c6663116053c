"""What tests of operators share: devices, and a cache that is filled with known keys and values."""

import glob
import os

import torch

import allot

# With a PyTorch for CUDA, a GPU that is there and cannot be used is a failure.
SEES_GPU = (torch.version.cuda and glob.glob("/dev/nvidia[0-9]*")
            and os.environ.get("CUDA_VISIBLE_DEVICES", "0")[:1] not in ("", "-"))
assert torch.cuda.is_available() or not SEES_GPU, "PyTorch cannot use this machine's GPU: see nvidia-smi"
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
HEADS, KV_HEADS = 8, 2


class Filled:
    """A cache on a device with rows of these lengths, keys and values of normal numbers; on a GPU in
    bfloat16, else in float32 unless asked otherwise. Their float32 values are kept."""

    def __init__(self, device, lengths, head_dim=64, page_size=16, dtype=None, seed=1, **parts):
        dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
        generator = torch.Generator().manual_seed(seed)
        self.device, self.head_dim, rows = device, head_dim, len(lengths)
        max_pages = max(max(lengths), 1) // page_size + 2
        self.workspace = allot.Workspace(device)
        self.cache = allot.make_cache(
            rows * max_pages, KV_HEADS, page_size, head_dim, dtype=dtype, device=device, **parts
        )
        order = torch.randperm(rows * max_pages, generator=generator)
        self.page_table = order.to(torch.int32).view(rows, max_pages).to(device)
        self.keys, self.values = [], []
        for row, length in enumerate(lengths):
            keys, values = (
                torch.randn(1, length, KV_HEADS, head_dim, generator=generator)
                .to(dtype)
                .float()
                .to(device)
                for _ in range(2)
            )
            self.keys.append(keys[0])
            self.values.append(values[0])
            table = self.page_table[row : row + 1]
            starts = torch.zeros(1, dtype=torch.int32, device=device)
            allot.append_kv(keys, values, self.cache, table, starts, self.workspace)
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=device)
        self.queries = torch.randn(rows, HEADS, head_dim, generator=generator).to(device)

    def words(self, *values):
        return allot.words(values, self.device)

    def arguments(self, budgets, steps=None, sequences=None):
        """Positional arguments of decode_attention up to `steps`."""
        rows = len(self.lengths)
        return (
            self.queries,
            self.cache,
            self.page_table,
            self.lengths,
            budgets,
            self.words(*(sequences or range(rows))),
            self.words(*(steps or [1] * rows)),
        )

    def plan(self, method, max_budget=64, statistics=True, max_length=4096):
        self.workspace.plan_decode(
            self.cache,
            method,
            rows=len(self.lengths),
            heads=HEADS,
            max_length=max_length,
            max_budget=max_budget,
            statistics=statistics,
        )

    def dense(self):
        """Exact attention in double precision, [rows, heads, head_dim]."""
        out = torch.zeros_like(self.queries, dtype=torch.float64)
        for row, (keys, values) in enumerate(zip(self.keys, self.values)):
            if len(keys) == 0:
                continue
            k, v = (x.double().repeat_interleave(HEADS // KV_HEADS, 1) for x in (keys, values))
            scores = torch.einsum("hd,nhd->hn", self.queries[row].double(), k)
            weights = torch.softmax(scores / self.head_dim**0.5, -1)
            out[row] = torch.einsum("hn,nhd->hd", weights, v)
        return out

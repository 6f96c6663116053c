# %% [markdown]
# A learned schedule against a uniform one, on the model that is in the repository: a minute on two cores.
# Run it as a program, or cell by cell in a notebook (`# %%` marks them). It needs transformers and pandas.

# %%
import os
import random
import sys

import pandas
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import allot

MODEL = os.path.join(os.path.dirname(__file__), "..", "..", "experiments", "models", "recall-7m")
sys.path.insert(0, MODEL)
import recall_suite  # noqa: E402  what the model was trained on

torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_file=os.path.join(MODEL, "tokenizer.json"), padding_side="left"
)
tokenizer.pad_token_id, newline = 2, tokenizer("\n")["input_ids"][0]

# %% Questions: a context each, and what is to be written behind it.
prompts, answers = [], []
for seed in range(32):
    context, questions = recall_suite.make(random.Random(seed), 150)
    question, right, _ = next(q for q in questions if q[2] in ("niah", "multi", "track"))
    prompts.append("<|bos|>" + context + recall_suite.q_text(question))
    answers.append(right)
batch = tokenizer(prompts, return_tensors="pt", padding=True)
ids, mask = batch["input_ids"], batch["attention_mask"]


# %% One method and schedule: 8 reads a head and token, in other layers or in all.
def accuracy(method, schedule=None):
    attention = allot.attention(model, method, schedule, seed=7)
    cache = attention.cache(statistics=True)
    out = model.generate(
        input_ids=ids, attention_mask=mask, past_key_values=cache, max_new_tokens=20,
        do_sample=False, eos_token_id=newline, pad_token_id=2,
    )
    texts = tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)
    reads = cache.reads()
    return {
        "method": method,
        "schedule": schedule,
        "accuracy": sum(t.strip() == a for t, a in zip(texts, answers)) / len(answers),
        "KV bytes read": (reads["key_bytes"] + reads["value_bytes"]) / reads["dense_bytes"],
    }


# A run's folder or policy.json stands for a list: accuracy("s2anta-sys", "runs/latest").
table = pandas.DataFrame(
    [
        accuracy("dense"),
        accuracy("s2anta-sys", [1] * 8),
        accuracy("s2anta-sys", [3, 2, 0, 0, 3, 0, 0, 0]),  # what ./run demo learns
        accuracy("s2anta-q4", [3, 2, 0, 0, 3, 0, 0, 0]),
    ]
)
print(table.to_string(index=False))

# %% A run's results, where one is named: python recall.py runs/latest
if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
    run = allot.read_run(sys.argv[1])
    cells = run.evaluations[run.evaluations["task"] == "all"]
    print(cells[["method", "schedule", "total_budget", "accuracy", "ci_low", "ci_high"]])
    print("curve.svg is there" if run.curve_svg() else "no curve.svg is there")

#!/usr/bin/env python3
"""Whether allot's dense answers are those of Hugging Face's transformers on the same weights in float32.

allot answers held-out questions of an experiment greedily, with dense prompts, dense decode steps and float32
keys and values on the CPU, and says their tokens (`allot-worker --schedules`, "spell"). transformers then reads each prompt and
allot's answer at once: its most likely token at each place is what it would have written there as long as all
before are the same, so that the first place where the two differ is where its own greedy answer would leave
allot's. Up to there the answers are equal token by token; what follows a difference is not compared.

Where they differ, the model is computed once more in float64: weights, angles, norms and sums.
  error   the largest difference between transformers' float32 logits and those of float64 at that place
  gap     by how much transformers prefers its own token to allot's, in float32
A tie is a gap of at most 4 errors: two logits, each computed by two programs, may each be off by one error.
What float64 prefers is said as well. A difference that is no tie ends the program with exit code 1.

A GGUF file's tensors are made float32 by the gguf package, not by allot. Both programs are never in memory
together: allot takes about 8 bytes a parameter, then transformers 4 (and 8 in float64).

    dense_parity.py experiments/recall-layer-budget/experiment.yaml --set spec.task.contextTokens=256
    dense_parity.py tests/bench/dense_parity.yaml --model qwen2.5-coder-1.5b-instruct.gguf \\
        --set spec.task.path=gsm8k/test.jsonl --questions 16 --tokens 128 --answers answers.json

A long prompt takes allot minutes on its one core; --device cuda lets a GPU do transformers' part.

Needs allot-worker (`./run build release allot-worker`) and `pip install torch transformers gguf accelerate pyyaml`.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIE_ERRORS = 4


def fail(why):
    sys.exit(f"dense_parity.py: {why}")


# --- allot

def allots_answers(options):
    """[{"question": 0, "score": 1, "prompt": [..], "tokens": [..]}, ...], from a file if it is there."""
    kept = options.answers
    if kept and kept.exists():
        print(f"answers of {kept}")
        return json.loads(kept.read_text())
    settings = [f"spec.task.heldOutQuestions={options.first + options.questions}",
                f"spec.task.maxNewTokens={options.tokens}", "spec.model.device=cpu",
                "spec.model.kvDtype=float32", *options.set]
    command = [str(options.bin / "allot-worker"), "--schedules", options.experiment, "--kv-memory",
               str(options.kv_memory)]
    for setting in settings:
        command += ["--set", setting]
    if options.model:
        command += ["--model", options.model]
    asked = list(range(options.first, options.first + options.questions))
    line = json.dumps({"spell": asked, "method": "dense"}) + "\n"
    start = time.time()
    try:
        done = subprocess.run(command, input=line, capture_output=True, text=True)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}: run ./run build release allot-worker")
    if done.returncode != 0:
        fail((done.stderr.strip().splitlines() or ["allot-worker ended"])[-1])
    answers = json.loads(done.stdout)["answers"]
    print(f"allot: {len(answers)} answers, {sum(len(a['tokens']) for a in answers)} tokens, "
          f"{time.time() - start:.0f} s with loading")
    if kept:
        kept.write_text(json.dumps(answers) + "\n")
    return answers


# --- transformers

def load_model(path, device):
    os.environ.setdefault("TQDM_DISABLE", "1")
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_grad_enabled(False)
    where = {"pretrained_model_name_or_path": path}
    if path.is_file():
        where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    model = AutoModelForCausalLM.from_pretrained(
        **where, torch_dtype=torch.float32, attn_implementation="sdpa", local_files_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is 32 bits on a GPU, too
    return model.to(device).eval()


def logits_of(model, answer):
    """After the prompt and after each token but the last, [tokens, vocab]."""
    import torch

    ids = torch.tensor([answer["prompt"] + answer["tokens"][:-1]], device=model.device)
    return model(ids, use_cache=False, logits_to_keep=len(answer["tokens"])).logits[0].cpu()


def make_exact(model):
    """The model in float64, in place: transformers computes norms and angles in float32 whatever the weights."""
    import torch

    def norm(module):
        eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps")
        return lambda x: module.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))

    def angles(frequencies):
        def forward(x, position_ids):
            angle = position_ids[..., None].double() * frequencies
            angle = torch.cat((angle, angle), dim=-1)
            return angle.cos(), angle.sin()
        return forward

    model.double()
    rotary = model.model.rotary_emb
    if rotary.attention_scaling != 1:
        fail("positions whose angles' cosines are scaled are not computed in float64 here")
    frequencies = rotary.inv_freq.double()
    if rotary.rope_type == "default":
        width = 2 * len(frequencies)
        steps = torch.arange(0, width, 2, dtype=torch.float64, device=frequencies.device) / width
        theta = getattr(model.config, "rope_theta", None) or model.config.rope_parameters["rope_theta"]
        frequencies = float(theta) ** -steps
    rotary.forward = angles(frequencies)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm(module)


# --- comparison

def first_difference(logits, answer):
    """The place where transformers' likeliest token is not allot's; None where all are."""
    import torch

    wanted = torch.tensor(answer["tokens"])
    different = (logits.argmax(-1) != wanted).nonzero()
    return int(different[0]) if len(different) else None


def compare(model, answers):
    """A row for each answer; those that differ keep their logits there."""
    rows = []
    for answer in answers:
        start = time.time()
        logits = logits_of(model, answer)
        top = logits.topk(2, dim=-1).values
        place = first_difference(logits, answer)
        compared = len(answer["tokens"]) if place is None else place
        row = {"question": answer["question"], "score": answer["score"], "prompt": len(answer["prompt"]),
               "tokens": len(answer["tokens"]), "equal_tokens": compared, "difference": place,
               "least_gap": float((top[:, 0] - top[:, 1])[:compared].min()) if compared else None}
        if place is not None:
            own, allots = int(logits[place].argmax()), answer["tokens"][place]
            row.update(transformers=own, allot=allots, logits=logits[place].clone(),
                       gap=float(logits[place, own] - logits[place, allots]))
        rows.append(row)
        print(f"question {row['question']}: {row['prompt']} tokens read, {compared} of {row['tokens']} "
              f"written are equal, closest top two {text(row['least_gap'])} ({time.time() - start:.0f} s)",
              flush=True)
    return rows


def judge(model, answers, rows):
    """Adds error, tie and float64's choice to the rows that differ."""
    make_exact(model)
    for answer, row in zip(answers, rows):
        if row["difference"] is None:
            continue
        exact = logits_of(model, answer)[row["difference"]]
        row["error"] = float((row.pop("logits").double() - exact).abs().max())
        row["tie"] = row["gap"] <= TIE_ERRORS * row["error"]
        row["float64"] = int(exact.argmax())
        row["gap_float64"] = float(exact[row["transformers"]] - exact[row["allot"]])


def text(number):
    return "-" if number is None else f"{number:.2e}"


def report(rows):
    equal = sum(row["difference"] is None for row in rows)
    ties = sum(row.get("tie", False) for row in rows)
    for row in rows:
        if row["difference"] is None:
            continue
        print(f"question {row['question']}: token {row['difference']} is {row['allot']} of allot, "
              f"{row['transformers']} of transformers, {row['float64']} in float64; gap {text(row['gap'])}, "
              f"in float64 {text(row['gap_float64'])}, error {text(row['error'])}: "
              + ("a tie" if row["tie"] else "NO TIE"))
    tokens = sum(row["equal_tokens"] for row in rows)
    least = min((row["least_gap"] for row in rows if row["least_gap"] is not None), default=None)
    print(f"{equal} of {len(rows)} answers are equal, {ties} up to a tie, {len(rows) - equal - ties} are not; "
          f"{tokens} tokens are equal, the closest top two of them {text(least)} apart")
    return equal + ties == len(rows)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="its model, task and chat template are what is compared")
    parser.add_argument("--model", help="a Hugging Face folder or a GGUF file in place of spec.model.path")
    parser.add_argument("--questions", type=int, default=16, help="number of held-out questions [16]")
    parser.add_argument("--first", type=int, default=0, help="from this one on [0]")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer at most [64]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="replaces a value of the file")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where allot-worker is")
    parser.add_argument("--kv-memory", type=int, default=1024, help="MiB for allot's keys and values [1024]")
    parser.add_argument("--device", default="cpu", help="where transformers computes: cpu or cuda [cpu]")
    parser.add_argument("--threads", type=int, default=0, help="of transformers [all cores]")
    parser.add_argument("--answers", type=pathlib.Path, help="keep allot's answers here; if it is there, use it")
    parser.add_argument("--out", type=pathlib.Path, help="write the comparison as JSON")
    options = parser.parse_args()
    if options.questions < 1 or options.first < 0 or options.tokens < 1:
        parser.error("--questions and --tokens are 1 or more, --first 0 or more")
    return options


def model_path(options):
    """As allot finds it: as it stands, or below a folder above the experiment file."""
    if options.model:
        return pathlib.Path(options.model).resolve()
    import yaml

    spec = yaml.safe_load(pathlib.Path(options.experiment).read_text())["spec"]
    path = spec["model"]["path"]
    for setting in options.set:
        key, _, value = setting.partition("=")
        path = value if key == "spec.model.path" else path
    for folder in (pathlib.Path(), *pathlib.Path(options.experiment).resolve().parents):
        if (folder / path).exists():
            return (folder / path).resolve()
    return fail(f"there is no model {path}: name it with --model")


def main():
    options = parsed()
    path = model_path(options)
    answers = allots_answers(options)
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    start = time.time()
    model = load_model(path, options.device)
    print(f"transformers: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, "
          f"{time.time() - start:.0f} s to load", flush=True)
    rows = compare(model, answers)
    if any(row["difference"] is not None for row in rows):
        judge(model, answers, rows)
    good = report(rows)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

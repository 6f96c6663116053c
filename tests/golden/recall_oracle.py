"""What Python says: prints JSON that worker/recall_test.cpp compares with the C++ generator.

usage: recall_oracle.py FOLDER_OF_RECALL_SUITE

random:  the numbers of random.Random for a few seeds, call by call
samples: make and make_freq for every seed and budget; tied is true where make_freq's answer rests
         on the order of a set
digest:  SHA-256 over all samples, in order (tied answers left out)
"""
import collections
import hashlib
import json
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import recall_suite  # noqa: E402

BUDGETS = [120, 373, 700]
EDGES = [0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 1]
SEEDS = EDGES + [(i * 0x9E3779B97F4A7C15) % 2**64 for i in range(1, 206)]


def numbers(seed):
    r = random.Random(seed)
    calls = {"random": [r.random() for _ in range(700)]}
    calls["getrandbits"] = [r.getrandbits(k) for k in range(65)]
    calls["randrange"] = [r.randrange(-5, 2**k) for k in range(62)]
    calls["randint"] = [r.randint(-k, k) for k in range(50)]
    calls["choice"] = [r.choice(range(1, k + 1)) for k in range(1, 50)]
    shuffled = list(range(100))
    r.shuffle(shuffled)
    calls["shuffle"] = shuffled
    calls["choices"] = r.choices(range(37), k=200)
    calls["weighted"] = r.choices(range(6), weights=[9, 0.1, 0, 4, 1, 0], k=200)
    calls["last"] = r.getrandbits(64)
    return {"seed": seed, **calls}


def tied(context):
    words = context.removeprefix("Words: ").removesuffix(".").split()
    counts = sorted(collections.Counter(words).values(), reverse=True)[:4]
    return len(set(counts)) < len(counts)


def sample(seed, words, make):
    context, questions = make(random.Random(seed), words)
    is_tied = make is recall_suite.make_freq and tied(context)
    return {"seed": seed, "words": words, "make": make.__name__, "tied": is_tied,
            "context": context, "questions": questions}


def digest(samples):
    h = hashlib.sha256()
    for s in samples:
        h.update((s["context"] + "\n").encode())
        for text, answer, task in s["questions"]:
            h.update(f"{task}|{text}|{'' if s['tied'] else answer}\n".encode())
    return h.hexdigest()


samples = [sample(seed, words, make) for seed in SEEDS for words in BUDGETS
           for make in (recall_suite.make, recall_suite.make_freq)]
json.dump({"random": [numbers(seed) for seed in EDGES], "samples": samples,
           "digest": digest(samples)}, sys.stdout)

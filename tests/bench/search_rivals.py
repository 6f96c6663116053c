"""Searches that schedule_search.py compares with allot's learners: each asks logits and hears what they were worth.

ask() returns the logits of one question set's trials, tell(advantages) what each got above the mean of the set's
others; mean is what the search would deploy.
"""
import math
import random

STEP = 1.0  # standard deviation of what is tried, in logits


class Evolution:
    """An evolution strategy (Salimans et al., arXiv 1703.03864): antithetic noise, and Adam's steps."""

    RATE, DECAY_1, DECAY_2 = 0.2, 0.9, 0.999

    def __init__(self, layers, trials, seed):
        self.mean, self.pairs, self.random, self.steps = [0.0] * layers, trials // 2, random.Random(seed), 0
        self.first, self.second = [0.0] * layers, [0.0] * layers

    def ask(self):
        self.noise = [[self.random.gauss(0, 1) for _ in self.mean] for _ in range(self.pairs)]
        return [[m + sign * STEP * e for m, e in zip(self.mean, noise)] for noise in self.noise for sign in (1, -1)]

    def tell(self, advantages):
        self.steps += 1
        differences = [up - down for up, down in zip(advantages[::2], advantages[1::2])]
        for layer in range(len(self.mean)):
            gradient = sum(d * noise[layer] for d, noise in zip(differences, self.noise)) / len(advantages) / STEP
            self.first[layer] += (1 - self.DECAY_1) * (gradient - self.first[layer])
            self.second[layer] += (1 - self.DECAY_2) * (gradient**2 - self.second[layer])
            first = self.first[layer] / (1 - self.DECAY_1**self.steps)
            second = self.second[layer] / (1 - self.DECAY_2**self.steps)
            self.mean[layer] += self.RATE * first / (math.sqrt(second) + 1e-8)


class CmaEs:
    """CMA-ES (Hansen, arXiv 1604.00772) by package cmaes: a generation is two question sets, as answers are noisy."""

    def __init__(self, layers, trials, seed):
        import cmaes
        import numpy
        self.trials, self.told, self.mean = trials, [], [0.0] * layers
        self.search = cmaes.CMA(mean=numpy.zeros(layers), sigma=STEP, seed=seed, population_size=2 * trials)

    def ask(self):
        self.asked = [self.search.ask() for _ in range(self.trials)]
        return self.asked

    def tell(self, advantages):
        self.told += [(logits, -advantage) for logits, advantage in zip(self.asked, advantages)]
        if len(self.told) == self.search.population_size:
            self.search.tell(self.told)
            self.told, self.mean = [], self.search.mean


RIVALS = {"evolution": Evolution, "cma-es": CmaEs}

#!/usr/bin/env python3
"""Writes the router cases that tests/weights compares with: router/NAME.json next to this file.

Needs numpy; the tests themselves need none of it. Everything is taken in fp64, token after token, from the definitions
in docs/experts.md. The gradient of the balance loss is a derivative by complex steps, with what is counted, and which
experts a token has, held constant; so it shares no formula with the kernels.

A file is {"cases": [{"moe": {words of the section moe}, "group": G, "logits": [T][E], "chosen": [T][k],
"kept": [T][k], "weights": [T][k], "balance_loss": L, "d_logits": [T][E]}]}. G is moe.expert_group_size. `chosen` is
in the order of the choices (in rounds it may name an expert twice), `kept` is 0 or 1, and a dropped choice has weight
0. `d_logits` is the gradient of `balance_loss`; neither has the factor. A further file of that form is read too.

    python3 tests/reference/make_router.py
"""
import itertools
import json
import math
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent / "router"
LEAST = 1e-9  # what sums over experts that are kept, or not yet kept, begin with


def softmax(logits):
    powers = np.exp(logits - logits.real.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def best(values, count, allowed):
    """The `count` largest of the allowed, of equal ones the first."""
    order = sorted(allowed, key=lambda e: (-values[e], e))
    return order[:count]


class Case:
    def __init__(self, moe, group, logits):
        self.moe, self.group, self.logits = moe, group, logits
        self.tokens, self.experts = logits.shape
        self.topk = moe["router_topk"]
        self.by_sigmoid = moe.get("router_score_function") == "sigmoid"
        self.pre_softmax = moe.get("router_pre_softmax", self.topk == 1)
        self.scores = sigmoid(logits) if self.by_sigmoid else softmax(logits)
        whole = self.topk == 1 if self.by_sigmoid else self.pre_softmax
        self.form = moe.get("router_weights", "all" if whole else "chosen")
        self.rounds = moe.get("router_choice", "topk") == "rounds"

    def allowed(self, token):
        """The experts of the best groups of experts."""
        groups, most = self.moe.get("router_num_groups", 1), self.moe.get("router_group_topk", 1)
        size = self.experts // groups
        if most >= groups:
            return list(range(self.experts))
        values = self.logits[token] if not (self.by_sigmoid or self.pre_softmax) else self.scores[token]
        sums = [sum(sorted(values[g * size:(g + 1) * size])[-(self.topk // most):]) for g in range(groups)]
        return [g * size + i for g in best(sums, most, range(groups)) for i in range(size)]

    def choose(self):
        self.chosen = np.zeros((self.tokens, self.topk), int)
        self.kept = np.zeros((self.tokens, self.topk), int)
        self.again = np.zeros((self.tokens, self.topk), int)  # names an expert that the token has
        if not self.rounds:
            for t in range(self.tokens):
                self.chosen[t] = best(self.scores[t], self.topk, self.allowed(t))
        factor = self.moe.get("capacity_factor")
        size = self.moe.get("capacity_group_size", self.group) if factor else self.group
        for first in range(0, self.tokens, size):
            places = math.ceil(((self.topk * size) * factor) / self.experts) if factor else self.topk * size
            self.fill(range(first, first + size), places)

    def fill(self, tokens, places):
        taken = [0] * self.experts
        for t, j in self.order(tokens):
            if self.rounds:
                self.chosen[t, j] = self.next_of(t, j)
            e = self.chosen[t, j]
            self.again[t, j] = e in self.has(t, j)
            self.kept[t, j] = taken[e] < places
            taken[e] += self.kept[t, j]

    def order(self, tokens):
        """In which choices find places."""
        choices = list(itertools.product(tokens, range(self.topk)))
        overflow = self.moe.get("overflow", "position")
        if overflow == "token":
            return choices
        if overflow == "position":
            return sorted(choices, key=lambda c: (c[1], c[0]))
        weight = {}
        for t, j in choices:
            p = self.scores[t, self.chosen[t]]
            weight[t, j] = p[j] / p.sum() if self.form == "chosen" else p[j]
        return sorted(choices, key=lambda c: (-np.float32(weight[c]), c))

    def has(self, t, end):
        return [self.chosen[t, j] for j in range(end) if self.kept[t, j]]

    def next_of(self, t, j):
        free = [e for e in range(self.experts) if e not in self.has(t, j)]
        first = best(self.scores[t], 1, free)[0]
        return first if np.float32(self.scores[t, first]) > 0 else 0

    def weights(self):
        live = self.kept * (1 - self.again)
        scores = np.take_along_axis(self.scores, self.chosen, -1)
        summed = {"all": 0 * live, "chosen": 1 - self.again, "kept": live}[self.form]
        start = {"all": 1, "chosen": 1e-20 if self.by_sigmoid else 0, "kept": LEAST}[self.form]
        sums = start + (scores * summed).sum(-1, keepdims=True)
        return self.moe.get("router_topk_scaling_factor", 1.0) * live * scores / sums

    def counted(self):
        """What the balance loss counts: for each term [groups][experts], as shares."""
        counts = np.zeros((self.topk if self.rounds else 1, self.tokens // self.group, self.experts))
        for t in range(self.tokens):
            choices = self.chosen[t]
            if self.moe.get("balance_counts") == "free":
                choices = best(self.scores[t], self.topk, range(self.experts))
            for j, e in enumerate(choices):
                counts[j if self.rounds else 0, t // self.group, e] += 1
        return counts / counts.sum(-1, keepdims=True)

    def balance(self, logits):
        """Of other logits too, complex ones among them."""
        if self.moe.get("router_load_balancing_type") == "none":
            return 0 * logits.sum()
        p = softmax(logits)
        if self.by_sigmoid:
            p = sigmoid(logits) / sigmoid(logits).sum(-1, keepdims=True)
        groups = self.tokens // self.group
        loss = 0
        for j, shares in enumerate(self.counted()):
            q = p
            if self.rounds:
                mask = np.ones(p.shape)
                for t in range(self.tokens):
                    mask[t, self.has(t, j)] = 0
                q = p * mask / ((p * mask).sum(-1, keepdims=True) + LEAST)
            for g in range(groups):
                mean = q[g * self.group:(g + 1) * self.group].mean(0)
                loss = loss + self.experts * (shares[g] * mean).sum() / groups
        return loss

    def slopes(self):
        slopes = np.zeros(self.logits.shape)
        for at in np.ndindex(*self.logits.shape):
            moved = self.logits.astype(complex)
            moved[at] += 1e-200j
            slopes[at] = self.balance(moved).imag / 1e-200
        return slopes

    def json(self):
        self.choose()
        rounded = lambda x: [[float(f"{v:.9g}") for v in row] for row in x]
        return {"moe": self.moe, "group": self.group, "logits": rounded(self.logits), "chosen": self.chosen.tolist(),
                "kept": self.kept.tolist(), "weights": rounded(self.weights()),
                "balance_loss": float(self.balance(self.logits)), "d_logits": rounded(self.slopes())}


def random_case(random, moe, groups=2, spread=1.5):
    """Logits with three decimals, of which no two of a token are equal."""
    experts = moe.setdefault("num_experts", int(random.choice([4, 6, 8])))
    group = int(random.choice([4, 6, 8]))
    logits = np.round(random.normal(size=(groups * group, experts)) * spread, 3)
    logits += np.arange(experts) * 2.0 ** -12
    logits = logits.astype(np.float32).astype(np.float64)
    if moe.get("capacity_group_size"):
        moe["capacity_group_size"] *= group
    return Case(moe, group, logits).json()


def rounds(random):
    for topk, factor, form in itertools.product((1, 2, 3), (None, 1.0, 1.1, 1.5), ("kept", "all")):
        moe = {"router_topk": topk, "router_choice": "rounds", "router_load_balancing_type": "round_aux_loss",
               "router_weights": form}
        if factor:
            moe["capacity_factor"] = factor
        if form == "all" and factor:
            moe["capacity_group_size"] = 2
        yield random_case(random, moe, groups=4 if factor == 1.1 else 2)
    chosen = {"router_topk": 2, "router_choice": "rounds", "router_load_balancing_type": "round_aux_loss",
              "router_weights": "chosen", "capacity_factor": 1.0}
    yield random_case(random, chosen)
    far = {"num_experts": 4, "router_topk": 3, "router_choice": "rounds", "router_weights": "kept",
           "router_load_balancing_type": "round_aux_loss"}
    for factor in (None, 1.0):
        moe = dict(far, **({"capacity_factor": factor} if factor else {}))
        logits = np.array([[300, 0, -20, 1], [0, 1, 2, 3], [-200, 0, 1, -400], [0, 150, 0, 0.0]])
        yield Case(moe, 4, logits).json()


def at_once(random):
    for overflow, form, topk in itertools.product(("position", "probability", "token"), ("all", "chosen", "kept"),
                                                  (1, 2, 3)):
        moe = {"router_topk": topk, "router_weights": form, "overflow": overflow,
               "capacity_factor": float(random.choice([1.0, 1.25]))}
        if topk == 2:
            moe["capacity_group_size"] = 2
        yield random_case(random, moe)
    for words in ({}, {"router_topk": 2}, {"router_topk": 2, "router_pre_softmax": True},
                  {"router_topk": 2, "router_load_balancing_type": "none"}, {"router_topk": 2, "router_weights": "kept"},
                  {"router_topk": 2, "router_topk_scaling_factor": 2.5}):
        yield random_case(random, {"router_topk": 1, **words})


def limited(random):
    """Sigmoid scores, groups of experts, and what would be chosen without them."""
    for score, counts, form in itertools.product(("softmax", "sigmoid"), ("chosen", "free"), (None, "all", "kept")):
        moe = {"num_experts": 8, "router_topk": 4, "router_score_function": score, "balance_counts": counts,
               "router_num_groups": 4, "router_group_topk": 2}
        if form:
            moe["router_weights"] = form
        if form == "kept":
            moe.update(capacity_factor=1.0, router_pre_softmax=True, overflow="token")
        yield random_case(random, moe)
    for topk in (1, 2):
        yield random_case(random, {"router_topk": topk, "router_score_function": "sigmoid", "capacity_factor": 1.0})


def main():
    HERE.mkdir(exist_ok=True)
    for seed, make in enumerate((rounds, at_once, limited)):
        cases = list(make(np.random.default_rng(seed)))
        lines = ",\n".join(json.dumps(case) for case in cases)
        (HERE / f"{make.__name__}.json").write_text('{"cases": [\n' + lines + "\n]}\n")
        dropped = sum(row.count(0) for case in cases for row in case["kept"])
        print(f"{make.__name__}: {len(cases)} cases, {dropped} choices are dropped")


if __name__ == "__main__":
    main()

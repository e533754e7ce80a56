#!/usr/bin/env python3
"""Writes 20 steps of Lion in fp64, which tests/ops/lion_test.cpp and the kernels must follow. Needs no package.

    python3 tests/reference/make_optimizers.py

optimizers/lion.txt: after each step a line "STEP", then the parameter and the momentum of each element. Elements and
gradients are fractions that fp32 holds exactly; a third of the elements does not decay, and one never has a gradient.
"""
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
ELEMENTS, STEPS, BETA1, BETA2, RATE, DECAY = 24, 20, 0.9, 0.99, 2.0**-7, 0.125


def gradient(step, i):
    return 0.0 if i == 7 else ((i + 3) * (step + 5) * 7919 % 257 - 128) / 64


def sign(x):
    return (x > 0) - (x < 0)


def main():
    p, m, lines = [(37 * i % 101 - 50) / 16 for i in range(ELEMENTS)], [0.0] * ELEMENTS, []
    for step in range(STEPS):
        g = [gradient(step, i) for i in range(ELEMENTS)]
        c = [BETA1 * m[i] + (1 - BETA1) * g[i] for i in range(ELEMENTS)]
        p = [p[i] - RATE * (sign(c[i]) + (DECAY if i % 3 else 0) * p[i]) for i in range(ELEMENTS)]
        m = [BETA2 * m[i] + (1 - BETA2) * g[i] for i in range(ELEMENTS)]
        lines += [str(step + 1)] + [f"{a:.17g} {b:.17g}" for a, b in zip(p, m)]
        assert all(c[i] == 0 or abs(c[i]) > 1e-5 for i in range(ELEMENTS)), "fp32 may give another sign"
    (HERE / "optimizers" / "lion.txt").write_text("\n".join(lines) + "\n")


main()

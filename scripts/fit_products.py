#!/usr/bin/env python3
"""Prints the figures of products, attention and collectives of a device, for a file of configs/devices.

    scripts/fit_products.py FOLDER DEVICE

FOLDER is aiconfigurator_core/systems of the package aiconfigurator-core (NVIDIA, Apache-2.0; `pip download --no-deps
aiconfigurator-core`, then unzip), DEVICE a folder of its data, for example h100_sxm. Needs numpy and pyarrow.

Products: the formula of lib/plan/prices/price_list.h on a third of the pairs (n, k), by a coordinate search on the mean
absolute logarithm; the error is that of the other pairs. Attention: the same on the table's lengths and heads.
Collectives: the seconds of 21 sizes by collective and number of ranks, made to rise with the size.
"""
import glob
import math
import sys
import zlib

import numpy
import pyarrow.parquet

# bf16 FLOP/s, memory bytes/s, processors of the data sheets.
SHEETS = {"a100_sxm": (312e12, 2.039e12, 108), "h100_sxm": (989e12, 3.35e12, 132), "h200_sxm": (989e12, 4.8e12, 132),
          "b200_sxm": (2250e12, 7.7e12, 148), "gb200": (2500e12, 8.0e12, 152)}
TILES = ((128, 256), (128, 128), (64, 128), (128, 64), (64, 64))
FRAMEWORKS = ("trtllm", "sglang", "vllm")


def rows_of(folder, device, pattern, frameworks=FRAMEWORKS):
    """The rows of the newest table of the first framework that has one."""
    for framework in frameworks:
        files = sorted(glob.glob(f"{folder}/data/{device}/{pattern.format(framework)}"))
        if files:
            return framework, pyarrow.parquet.read_table(files[-1]).to_pydict()
    sys.exit(f"{folder}/data/{device} has no table {pattern}")


def search(start, error, rounds=40, step=0.15):
    """Coordinate search: each constant is moved by shrinking steps while that helps."""
    best, least = list(start), error(start)
    for _ in range(rounds):
        moved = False
        for index, value in enumerate(best):
            for factor in (1 + step, 1 / (1 + step)):
                trial = list(best)
                trial[index] = value * factor
                found = error(trial)
                if found < least - 1e-7:
                    best, least, moved = trial, found, True
                    value = trial[index]
        if not moved:
            step /= 2
            if step < 0.004:
                break
    return best, least


def product_seconds(sheet, constants, m, n, k):
    peak, bandwidth, processors = sheet
    reached, wave, half, memory_reached, launch, square, narrow, small = constants
    quality = (1.0, square, narrow, narrow, small)
    memory = bandwidth * memory_reached
    best = numpy.full(m.shape, numpy.inf)
    for (rows, columns), speed in zip(TILES, quality):
        for splits in (1, 2, 4, 8):
            waves = numpy.ceil(m / rows) * numpy.ceil(n / columns) * splits / processors
            taken = wave * numpy.ceil(waves) + (1 - wave) * numpy.maximum(waves, 1)
            seconds = taken * processors * 2 * rows * columns * (k / splits + half) / (peak * reached * speed)
            if splits > 1:
                seconds = numpy.where(k // splits >= 256, seconds + m * n * (4 * splits + 4) / memory + launch * 1e-6,
                                      numpy.inf)
            best = numpy.minimum(best, seconds)
    return numpy.maximum(best, 2 * (m * k + k * n + m * n) / memory) + launch * 1e-6


def fit_products(folder, device):
    framework, table = rows_of(folder, device, "gemm/{}/*/gemm_perf.parquet")
    m, n, k, measured, kinds = (numpy.array(table[key]) for key in ("m", "n", "k", "latency", "gemm_dtype"))
    used = (kinds == "bfloat16") & (m >= 1024) & (m <= 32768)
    m, n, k, measured = (numpy.array(one[used], dtype=float) for one in (m, n, k, measured))
    measured = measured * 1e-3
    third = numpy.array([zlib.crc32(f"{int(a)}x{int(b)}".encode()) % 3 == 0 for a, b in zip(n, k)])

    def errors(constants, choice):
        if constants[0] > 1 or constants[1] > 1 or constants[3] > 1:
            return numpy.array([9.0])
        found = product_seconds(SHEETS[device], constants, m[choice], n[choice], k[choice])
        return numpy.abs(numpy.log(found / measured[choice]))

    start = (0.8, 0.4, 160, 0.75, 2.6, 1.0, 1.0, 1.0)
    constants, _ = search(start, lambda one: float(errors(one, third).mean()))
    others = errors(constants, ~third)
    large = errors(constants, ~third & (n >= 1024) & (k >= 1024))
    print(f"# {framework}: {len(m)} products, {third.sum()} fitted; the others: mean {others.mean():.1%}, median "
          f"{numpy.median(others):.1%}; n and k of at least 1,024: mean {large.mean():.1%}, median "
          f"{numpy.median(large):.1%}, nine tenths below {numpy.quantile(large, .9):.1%}")
    reached, wave, half, memory, launch, square, narrow, small = constants
    print(f"memory reached: {memory:.3f}")
    print(f"products:\n  bf16: {{peak: {SHEETS[device][0]:.4g}, reached: {reached:.3f}, wave: {wave:.3f}, half: {half:.0f}, "
          f"launch: {launch * 1e-6:.2g}, tiles: {{128x256: 1.0, 128x128: {square:.2f}, 64x128: {narrow:.2f}, "
          f"128x64: {narrow:.2f}, 64x64: {small:.2f}}}}}")


def fit_attention(folder, device):
    framework, table = rows_of(folder, device, "attention/{}/*/context_attention_perf.parquet", ("sglang", "vllm"))
    arrays = {key: numpy.array(table[key]) for key in table}
    used = arrays["attn_dtype"] == "bfloat16"
    if (used & (arrays["kv_cache_dtype"] == "bfloat16")).any():
        used &= arrays["kv_cache_dtype"] == "bfloat16"
    if "window_size" in arrays:
        used &= arrays["window_size"] == 0
    if "step" in arrays:
        used &= arrays["step"] == 0
    dims = arrays["head_dim"] if "head_dim" in arrays else numpy.full(len(used), 128)
    used &= (dims == 64) | (dims == 128)
    batch, length, heads, measured = (numpy.array(arrays[key][used], dtype=float)
                                      for key in ("batch_size", "isl", "num_heads", "latency"))
    dims = numpy.array(dims[used], dtype=float)
    measured = measured * 1e-3
    flops = 2 * batch * heads * length * length * dims
    enough = flops > 1e10
    third = numpy.array([zlib.crc32(f"{int(a)}x{int(b)}".encode()) % 3 == 0 for a, b in zip(length, heads)])

    def errors(constants, choice):
        forward, half, narrow, launch = constants
        rate = SHEETS[device][0] * forward * length / (length + half) * numpy.where(dims == 64, narrow, 1.0)
        return numpy.abs(numpy.log((flops / rate + launch * 1e-6) / measured))[choice]

    constants, _ = search((0.6, 500, 0.8, 20), lambda one: float(errors(one, third & enough).mean()))
    others = errors(constants, ~third & enough)
    forward, half, narrow, launch = constants
    print(f"# {framework}: {enough.sum()} cases; those not fitted: mean {others.mean():.1%}, median {numpy.median(others):.1%}")
    print(f"attention:\n  KERNEL: {{forward: {forward:.3f}, half_length: {half:.0f}, head_64: {narrow:.2f}, "
          f"launch: {launch * 1e-6:.2g}, backward: ...}}")


def print_collectives(folder, device):
    files = sorted(glob.glob(f"{folder}/data/{device}/comm/nccl/*/nccl_perf.parquet"),
                   key=lambda name: [int(part) for part in name.split("/")[-2].split(".")])
    table = pyarrow.parquet.read_table(files[-1]).to_pydict()
    found = {}
    for kind, ranks, size, name, latency in zip(table["nccl_dtype"], table["num_gpus"], table["message_size"],
                                                table["op_name"], table["latency"]):
        if kind == "half":
            found.setdefault((name, ranks), {})[2 * size] = latency * 1e3  # elements of two bytes
    sizes = [2 ** power for power in range(9, 30)]
    print(f"# NCCL {files[-1].split('/')[-2]}")
    print("collectives:\n  bytes: [" + ", ".join(str(size) for size in sizes) + "]\n  microseconds:")
    operations = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
                  "alltoall": "all_to_all"}
    for name, ours in operations.items():
        print(f"    {ours}:")
        for ranks in sorted(one for which, one in found if which == name):
            measured = found[name, ranks]
            known = sorted(measured)
            times, most = [], 0.0
            for size in sizes:
                time = math.exp(numpy.interp(math.log(size), [math.log(one) for one in known],
                                             [math.log(measured[one]) for one in known]))
                most = max(most, time)
                times.append(f"{most:.4g}")
            print(f"      {ranks}: [" + ", ".join(times) + "]")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in SHEETS:
        sys.exit(__doc__ + "\nDevices: " + ", ".join(SHEETS))
    fit_products(*sys.argv[1:])
    fit_attention(*sys.argv[1:])
    print_collectives(*sys.argv[1:])

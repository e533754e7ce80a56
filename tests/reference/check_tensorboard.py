#!/usr/bin/env python3
"""Reads event files with TensorBoard itself and compares them with metrics.jsonl. Optional.

    pip install tensorboard
    trainctl report RUN --format tensorboard
    tests/reference/check_tensorboard.py RUN [tensorboard.json]

The second argument is a file for what TensorBoard read. tests/reference/events is such a run with that file: a
test compares them without Python.
"""
import json
import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def expected(run):
    """{tag: [(step, value), ...]} of metrics.jsonl"""
    tags = {}
    for text in open(f"{run}/metrics.jsonl"):
        line = json.loads(text)
        if "step" not in line:
            continue
        other = ("step", "time", "skipped", "mfu_peak")
        values = {key: value for key, value in line.items() if key not in other}
        for key, value in values.pop("ledger", {}).items():
            values["ledger/" + key] = value
        for key, value in values.items():
            if value is not None:
                tags.setdefault(key, []).append((line["step"], value))
    return tags


def main():
    run = sys.argv[1]
    events = EventAccumulator(f"{run}/tensorboard", size_guidance={"scalars": 0})
    events.Reload()
    wanted = expected(run)
    assert sorted(events.Tags()["scalars"]) == sorted(wanted), events.Tags()["scalars"]
    for tag, points in wanted.items():
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert [step for step, _ in found] == [step for step, _ in points], tag
        for (_, got), (_, value) in zip(found, points):
            assert math.isclose(got, value, rel_tol=1e-6, abs_tol=1e-12), (tag, got, value)
    if len(sys.argv) > 2:
        read = {tag: [[event.step, event.value] for event in events.Scalars(tag)] for tag in sorted(wanted)}
        with open(sys.argv[2], "w") as file:
            json.dump(read, file, indent=1)
            file.write("\n")
    print(f"{run}: {len(wanted)} tags, {sum(map(len, wanted.values()))} values as in metrics.jsonl")


if __name__ == "__main__":
    main()

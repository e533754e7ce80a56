#!/usr/bin/env python3
"""Writes the orders of work of PyTorch's pipeline schedules, which tests/plan/other_orders_test.cpp compares with ours.

Needs PyTorch; the tests do not. No process group is made: a schedule only asks its stages for their numbers.

    python3 tests/reference/make_pipelines.py

pipelines/torch.txt: for each pipeline a line "NAME STAGES CHUNKS MICRO-BATCHES", then a line for each rank with what it
runs: F2.1 is the forward pass of micro-batch 2 on the rank's chunk 1, B the gradient of the input, W of the weights. A
backward that PyTorch runs as one is B, then W.
"""
import pathlib

import torch
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import _PipelineStageBase

HERE = pathlib.Path(__file__).resolve().parent
LETTERS = {"F": ["F"], "I": ["B"], "W": ["W"], "B": ["B", "W"]}
# Our name, theirs, chunks on a rank. The order that Schedule1F1B gives of itself (2.15) has micro-batches on the last
# rank that do not exist, so it is not here; what it runs is 1f1b.
SCHEDULES = [
    ("gpipe", schedules.ScheduleGPipe, [1]),
    ("interleaved_1f1b", schedules.ScheduleInterleaved1F1B, [2, 3]),
    ("interleaved_zb_h1", schedules.ScheduleInterleavedZeroBubble, [2, 3]),
    ("zb_v", schedules.ScheduleZBVZeroBubble, [2]),
]


class Stage(_PipelineStageBase):
    def __init__(self, index, ranks, stages):
        self.stage_index = index
        self.num_stages = stages
        self.group_size = ranks
        self.group_rank = index % ranks
        self.group = None
        self.submod = None
        self.has_backward = True

    is_first = property(lambda self: self.stage_index == 0)
    is_last = property(lambda self: self.stage_index == self.num_stages - 1)

    def _create_grad_recv_info(self, *_):
        return ()

    def _prepare_forward_infra(self, *_):
        return ()

    def _prepare_backward_infra(self, *_):
        return ()


def order(schedule, ranks, chunks, microbatches):
    stages = [Stage(chunk * ranks, ranks, ranks * chunks) for chunk in range(chunks)]
    made = schedule(stages if chunks > 1 else stages[0], microbatches, loss_fn=lambda *_: 0)
    return made.pipeline_order


def main():
    lines = []
    for name, schedule, counts in SCHEDULES:
        for ranks in (2, 4, 8):
            for chunks in counts:
                for microbatches in (ranks, 3 * ranks):
                    lines.append(f"{name} {ranks} {chunks} {microbatches}")
                    for _, actions in sorted(order(schedule, ranks, chunks, microbatches).items()):
                        words = []
                        for action in actions:
                            if action is None or action.computation_type.value not in LETTERS:
                                continue
                            for letter in LETTERS[action.computation_type.value]:
                                words.append(f"{letter}{action.microbatch_index}.{action.stage_index // ranks}")
                        lines.append(" ".join(words))
    text = f"# PyTorch {torch.__version__}\n" + "\n".join(lines) + "\n"
    (HERE / "pipelines" / "torch.txt").write_text(text)


if __name__ == "__main__":
    main()

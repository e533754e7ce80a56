// Fields of the sections about data, number formats, the machine, messages, files and hooks. See
// fields.h.
#pragma once

#include "config/schema/config.h"
#include "config/schema/field.h"
#include "config/schema/model_fields.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<PrecisionConfig> auto& precision) {
  visit(precision.compute,
        field("compute", "Type of the matrix products; masters have optimizer.main_params_dtype"));
  visit(precision.enable_autocast,
        field("enable_autocast",
              "Matrix products in autocast_dtype instead of compute; masters keep their type"));
  visit(precision.autocast_dtype,
        field("autocast_dtype", "Type of the matrix products under enable_autocast")
            .unset("compute"));
  visit(precision.loss_scale,
        field("loss_scale", "Constant factor on the loss for the backward pass")
            .above(0)
            .to(0x1p64)
            .unset("dynamic in fp16, else none"));
  visit(precision.dynamic_loss_scale,
        field("dynamic_loss_scale",
              "Lower the factor when gradients overflow, and raise it again later")
            .unset("true in fp16 without loss_scale, else false"));
  visit(precision.initial_loss_scale,
        field("initial_loss_scale", "Dynamic: factor in the first step").above(0).to(0x1p64));
  visit(precision.min_loss_scale,
        field("min_loss_scale", "Dynamic: smallest factor").above(0).to(0x1p64));
  visit(precision.loss_scale_growth,
        field("loss_scale_growth", "Dynamic: growth of the factor").above(1).to(1024));
  visit(precision.loss_scale_backoff,
        field("loss_scale_backoff", "Dynamic: multiplies the factor after an overflow")
            .above(0)
            .below(1));
  visit(precision.loss_scale_window,
        field("loss_scale_window", "Dynamic: updates without overflow before the factor grows")
            .from(1));
  visit(precision.loss_scale_hysteresis,
        field("loss_scale_hysteresis",
              "Dynamic: overflows before the factor falls; reset when it grows")
            .from(1));
}

template <class Visitor>
void fields(Visitor& visit, Is<ClusterConfig> auto& cluster) {
  constexpr const char* measured = "measured by a run";
  visit(cluster.matmul_flops,
        field("matmul_flops", "FLOP/s of matrix products in precision.compute")
            .above(0)
            .unset(measured));
  visit(cluster.memory_bandwidth,
        field("memory_bandwidth", "Bytes read and written in memory per second")
            .above(0)
            .unset(measured));
  visit(cluster.latency,
        field("latency", "Seconds per message between ranks").from(0).unset(measured));
  visit(cluster.bandwidth, field("bandwidth", "Bytes sent per second").above(0).unset(measured));
  visit(cluster.device_memory,
        field("device_memory",
              "GiB of memory of each CUDA device; a plan that needs more gets a warning")
            .gib()
            .unset("that of device, else not checked before a run"));
  visit(cluster.device,
        field("device",
              "Device to estimate times for: a name that `trainctl devices --known` lists, or a "
              "file; in place of the four rates")
            .from(1)
            .unset("none: times from the four rates"));
  visit(cluster.software,
        field("software",
              "What executes the layout on device: trainctl, or to compare, another name of "
              "`trainctl devices --known`, or a file")
            .from(1));
  visit(cluster.levels,
        field("levels",
              "Levels of the network from the inside out, each {name, ranks, bandwidth, latency, "
              "oversubscription, links}; the last one holds all ranks. Empty: the ranks of a host, "
              "then the network of device"));
  visit(cluster.price_per_hour,
        field("price_per_hour", "Price of one device for an hour, in any currency")
            .from(0)
            .unset("no cost is shown"));
}

template <class Visitor>
void fields(Visitor& visit, Is<LogConfig> auto& log) {
  visit(log.level,
        field("level", "Lowest level of messages shown; error also hides the progress line"));
  visit(log.every,
        field("every",
              "Steps between progress lines when stderr is not a terminal, and between reports of "
              "hooks.timers")
            .from(1));
  visit(log.color, field("color", "Use colours on a terminal"));
  visit(log.timer_level,
        field("timer_level",
              "With hooks.timers: 0: whole steps; 1: and phases; 2: and parts of each micro-batch")
            .from(0)
            .to(2));
  visit(log.barrier_with_timers,
        field("barrier_with_timers",
              "With hooks.timers: all ranks meet before each phase of level 1, so that none counts "
              "the lead of another"));
  visit(log.trace, field("trace", "File for a Chrome/Perfetto trace of all ranks; empty: none"));
  visit(log.trace_steps,
        field("trace_steps", "Number of steps in the trace, counted from the end of the run")
            .from(1)
            .to(1000));
  visit(log.max_attention_logit,
        field("max_attention_logit",
              "Report the largest logsumexp of attention's scores in each step, which no score "
              "exceeds"));
}

template <class Visitor>
void fields(Visitor& visit, Is<OutputConfig> auto& output) {
  visit(output.dir, field("dir", "Directory for metrics, logs, weights and the config").from(1));
  visit(output.overwrite, field("overwrite", "Replace the files of an earlier run in dir"));
  visit(output.save_weights, field("save_weights", "Write the final weights"));
  visit(output.tensorboard,
        field("tensorboard",
              "Also write each step to an event file of TensorBoard, in DIR/tensorboard"));
}

template <class Visitor>
void fields(Visitor& visit, Is<CheckpointConfig> auto& checkpoint) {
  visit(checkpoint.every, field("every", "Steps between checkpoints; 0: not by steps")
                              .count(0)
                              .or_minutes("every_minutes"));
  visit(checkpoint.every_minutes,
        field("every_minutes", "Minutes between checkpoints; 0: not by the clock").from(0).to(1e6));
  visit(checkpoint.at_end, field("at_end", "Save a checkpoint after the last step"));
  visit(checkpoint.keep, field("keep", "Newest checkpoints that are kept; 0: all").from(0));
  visit(checkpoint.keep_every,
        field("keep_every", "Also keep those whose step is a multiple of this; 0: none").count(0));
  visit(checkpoint.keep_best,
        field("keep_best", "Also keep the checkpoint with the lowest validation loss"));
  visit(checkpoint.asynchronous,
        field("asynchronous", "Write from a copy in memory while training continues"));
}

template <class Visitor>
void fields(Visitor& visit, Is<HooksConfig> auto& hooks) {
  visit(hooks.timers,
        field("timers",
              "Time the phases of a step: every log.every steps, the least and the most of all "
              "ranks, in the log and in metrics.jsonl"));
  visit(hooks.finalize_model_grads,
        field("finalize_model_grads",
              "Sum the gradients of each step over all ranks that share them; false only where "
              "none are shared"));
  visit(hooks.grad_scale,
        field("grad_scale", "Factor on the loss before the backward pass; none: 1, also in fp16"));
  visit(hooks.no_sync, field("no_sync",
                             "Backward passes that start no gradient sums: last_microbatch: all "
                             "except the last; never: none"));
  visit(hooks.grad_sync,
        field("grad_sync", "When gradient sums start: during the backward pass, or after it"));
  visit(hooks.param_sync,
        field("param_sync",
              "When a step gathers the parameters that other ranks updated. overlap: during the "
              "forward pass, with a wait where each bucket is read; before_forward: all first"));
}

template <class Visitor>
void fields(Visitor& visit, Is<DataSource> auto& source) {
  visit(source.path,
        field("path", "Text file or directory, .bin/.idx prefix, or .bin file").from(1).required());
  visit(source.weight,
        field("weight", "Share of the blend, relative to the other sources").above(0));
}

template <class Visitor>
void fields(Visitor& visit, Is<ValidationConfig> auto& validation) {
  visit(validation.path,
        field("path", "Separate validation data").from(1).unset("a part of the training data"));
  visit(validation.fraction,
        field("fraction", "Fraction of the training data held out; 0: no validation")
            .from(0)
            .below(1));
  visit(validation.split,
        field("split", "tail: the last part; blocks: every (1/fraction)th block of 1024 tokens"));
  visit(validation.max_sequences,
        field("max_sequences", "Maximum number of sequences per validation; 0: all").count(0));
}

template <class Visitor>
void fields(Visitor& visit, Is<DataConfig> auto& data) {
  visit(data.train,
        field("train", "Training data: a path, a list of paths, or a list of {path, weight}")
            .required());
  visit(data.tokenizer,
        field("tokenizer",
              "Converts text to tokens; sentencepiece takes a model file after the colon, hf a "
              "Hugging Face directory with a tokenizer.json")
            .one_of("byte|sentencepiece:|hf:"));
  visit.section(data.validation, field("validation", "Data for the validation loss"));
  visit(data.shuffle, field("shuffle", "Draw training sequences in a seeded random order"));
  visit(data.packing,
        field("packing",
              "Join documents and cut sequences from them; false: a sequence has tokens "
              "of one document, the rest of it is padding without loss"));
  visit(data.reset_attention_mask,
        field("reset_attention_mask", "Attention stays within a document"));
  visit(data.reset_position_ids, field("reset_position_ids", "Positions restart at each document"));
  visit(data.eod_mask_loss, field("eod_mask_loss", "No loss on the end-of-document token"));
  visit(data.eod_token, field("eod_token", "Token id that ends a document")
                            .from(0)
                            .to(2'147'483'647)
                            .unset("from the tokenizer, or from the file's documents"));
  visit(
      data.changed,
      field("changed",
            "If a source is not what the checkpoint's run read: refuse to go on, or allow it, with "
            "a new epoch of that source"));
  visit(data.cache_dir,
        field("cache_dir", "Directory for tokenised text; empty: the user's cache directory"));
  visit(data.prefetch, field("prefetch", "Number of batches to prepare ahead").from(0).to(1024));
}

}  // namespace trainctl

// The codes about YAML text, composition of files, values and upstream spellings.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote text_notes[] = {
    {"unreadable", "The file cannot be read",
     "The file is missing, is a directory, or is not readable. The exit code is 66.",
     "trainctl validate --config absent.yaml", "trainctl validate --config configs/gpt.yaml"},
    {"empty-file", "The file contains no configuration",
     "A configuration is a map of sections, but the file is empty or contains only comments.",
     "# nothing else", "model: {preset: gpt2-124m}"},
    {"syntax", "The text is not YAML", "The message says what the YAML parser expected and where.",
     "model: {family: gpt2", "model: {family: gpt2}"},
    {"unterminated-quote", "A quote is never closed", "The position is that of the opening quote.",
     "output: {dir: \"runs/a}", "output: {dir: \"runs/a\"}"},
    {"tab", "A tab indents a line", "YAML indents with spaces only.", "a tab before family: gpt2",
     "two spaces before family: gpt2"},
    {"encoding", "The file is not UTF-8", "The position is that of the first invalid byte.",
     "a file in ISO 8859-1", "the same file, saved as UTF-8"},
    {"control-character", "A control character in the text or in a value",
     "The text may contain line feeds and tabs, values no control character at all.",
     "output: {dir: \"a\\x07\"}", "output: {dir: a}"},
    {"too-large", "The text is larger than a configuration may be",
     "A file may have at most 1 MiB, and all files together a limited number of keys; an alias "
     "counts each time it is used.",
     "a data file given as configuration", "configs/gpt.yaml"},
    {"too-deep", "Maps or lists are nested too deeply",
     "The limit is far above what a configuration needs; it protects against hostile files.",
     "model: [[[[...]]]]", "model: {family: gpt2}"},
    {"too-many", "There are more findings than are shown", "Fix the ones shown and validate again.",
     "", ""},
    {"more-documents", "The file contains a second YAML document",
     "A configuration is one document, so `---` is allowed only before it.",
     "train: {...} --- train: {...}", "one document, and --set for the differences"},
    {"duplicate-key", "A key occurs twice in one map",
     "The message names both lines; remove the one that is not meant.",
     "train: {steps: 4, steps: 5}", "train: {steps: 5}"},
    {"bad-key", "A list, map, alias or empty text is used as a key", "Keys must be plain words.",
     "[a, b]: 1", "steps: 1"},
    {"tag", "The YAML tag is not supported",
     "The only supported tag is !override, in files that include others.",
     "train: {steps: !!python/int 4}", "train: {steps: 4}"},
    {"recursive-alias", "An alias refers to a value that contains it",
     "Such a value would be infinite.", "log: &a [*a]", "log: &a {every: 1}"},
    {"merge-key", "A merge key refers to something other than a map",
     "`<<` must refer to a map or a list of maps, usually through an alias.", "log: {<<: 3}",
     "log: {<<: *usual}"},
    {"unknown-key", "The key is unknown",
     "`trainctl schema` lists all keys, `trainctl schema --upstream` all upstream spellings. The "
     "help names the nearest known key.",
     "model: {num_layer: 4}", "model: {num_layers: 4}"},
    {"missing-key", "A required key is missing",
     "Keys marked required in docs/configuration.md have no default.", "train: {steps: 10}",
     "train: {steps: 10, global_batch_size: 8}"},
    {"wrong-type", "The value has the wrong type",
     "Numbers are decimal numbers, booleans are true and false, both without quotes. Put text that "
     "looks like a number or a boolean in quotes.",
     "train: {steps: four}", "train: {steps: 4}"},
    {"bad-word", "The word is not a legal value", "The message lists the legal values.",
     "optimizer: {type: adan}", "optimizer: {type: adamw}"},
    {"out-of-range", "The value is outside its legal range",
     "docs/configuration.md lists the limits; many come from upstream, such as capacity_factor >= "
     "1 "
     "and 0 < aux_loss_factor < 1 (MindFormers).",
     "moe: {aux_loss_factor: 0}", "moe: {aux_loss_factor: 0.05}"},
    {"internal-key", "trainctl sets this value itself",
     "The key is internal upstream; the only legal value is null.", "offload: {context: true}",
     "offload: {context: null}"},
    {"callable", "The key is a Python function upstream",
     "YAML cannot hold functions. The help names the built-in behaviour in `hooks` and the hook of "
     "the C++ interface that replace it; null is accepted.",
     "parallel: {no_sync_func: nccl_no_sync}", "hooks: {no_sync: last_microbatch}"},
    {"two-spellings", "One concept is given twice with different values",
     "Both spellings of a key may be given, but their values must be equal. Upstream, the last one "
     "wins without a message (comm_fusion and all_reduce_fusion_config, search_mode and "
     "auto_parallel_search_mode, full_batch and dataset_strategy, fp16 and bf16, ...).",
     "parallel: {model_parallel: 2, tensor_parallel: 4}", "parallel: {tensor_parallel: 4}"},
    {"deprecated", "The key is deprecated upstream",
     "It is accepted; the help names its replacement.",
     "parallel: {auto_parallel_search_mode: recursive_programming}",
     "parallel: {search_mode: recursive_programming}"},
    {"no-counterpart", "A value of another project changes the result and has no counterpart",
     "In a file of MindFormers, a key that would change the model, the data, the optimizer, the "
     "schedule or the start is read or refused. Values that ask for nothing pass.",
     "load_checkpoint: model.ckpt", "model: {from: models/llama}"},
    {"not-carried", "A key of MindFormers' runner is ignored",
     "Keys of a MindFormers file on which nothing here depends are ignored with a warning that "
     "says why.",
     "runner_config: {sink_mode: True}", "train: {steps: 1000}"},
    {"bad-set", "--set is not of the form PATH=VALUE",
     "The path is dotted, the value is YAML; a value with spaces is quoted for the shell.",
     "--set train.steps", "--set train.steps=100"},
    {"bad-variable", "A ${...} is not a variable",
     "${NAME} and ${NAME:-default} are replaced by the value of the environment variable, which "
     "must "
     "be valid UTF-8; write $${ for a literal ${.",
     "train: {steps: ${1x}}", "train: {steps: ${STEPS:-100}}"},
    {"unset-variable", "The environment variable is not set",
     "A default after :- is used if the variable is not set.", "train: {steps: ${STEPS}}",
     "train: {steps: ${STEPS:-100}}"},
    {"given-twice", "Two files give the same key",
     "A key given in several files is an error unless the later one says !override.",
     "include: base.yaml, with train: {steps: 5} in both",
     "include: base.yaml, with train: {steps: !override 5}"},
    {"nothing-overridden", "!override has no effect",
     "No included file gives this value. Remove the tag, or correct the key if it is misspelt.",
     "train: {steps: !override 5}", "train: {steps: 5}"},
    {"include-cycle", "A file includes itself", "The message shows the chain of includes.",
     "a.yaml: {include: a.yaml}", "a.yaml: {include: b.yaml}"},
    {"include-depth", "Files include each other too deeply",
     "Included files may include others, up to a depth of 16.", "", ""},
    {"include-missing", "An included file cannot be read",
     "Paths are relative to the including file.", "include: absent.yaml", "include: base.yaml"},
    {"include-refused", "include is used outside a file",
     "Only a file can include another; --set cannot.", "--set include=base.yaml",
     "include: base.yaml"},
    {"include-size", "The files are too large together",
     "All files together may have at most 1 MiB.", "", ""},
};

}  // namespace

std::span<const CodeNote> codes_of_text() { return text_notes; }

}  // namespace trainctl

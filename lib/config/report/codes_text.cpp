// The codes about YAML text, composition of files, values and upstream spellings.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote notes[] = {
    {"unreadable", "The file cannot be read",
     "The file that was named is missing, a folder, or not readable. The exit code is 66.",
     "trainctl validate --config absent.yaml", "trainctl validate --config configs/gpt.yaml"},
    {"empty-file", "There is no configuration in the file",
     "A configuration is a map of sections; the file is empty or has only comments.",
     "# nothing else", "model: {preset: gpt2-124m}"},
    {"syntax", "The text is not YAML", "The message says what the YAML parser expected and where.",
     "model: {family: gpt2", "model: {family: gpt2}"},
    {"unterminated-quote", "A quote is opened and never closed",
     "The place is that of the opening quote.", "output: {dir: \"runs/a}",
     "output: {dir: \"runs/a\"}"},
    {"tab", "A tab indents a line", "YAML indents with spaces only.", "a tab before family: gpt2",
     "two spaces before family: gpt2"},
    {"encoding", "The file is not UTF-8", "The place is that of the first wrong byte.",
     "a file in ISO 8859-1", "the same file, saved as UTF-8"},
    {"control-character", "A control character in the text or in a value",
     "Only line feeds and tabs are allowed; values have none at all.", "output: {dir: \"a\\x07\"}",
     "output: {dir: a}"},
    {"too-large", "The text is larger than a configuration may be",
     "A file has at most 1 MiB, and all files together a bounded number of keys; aliases count "
     "as often as they are used.",
     "a data file given as configuration", "configs/gpt.yaml"},
    {"too-deep", "Maps or lists are nested too deeply",
     "No configuration needs so many levels; the limit keeps hostile files harmless.",
     "model: [[[[...]]]]", "model: {family: gpt2}"},
    {"too-many", "There are more mistakes than are shown",
     "The rest is left out; repair the ones shown and validate again.", "", ""},
    {"more-documents", "The file has a second YAML document",
     "A configuration is one document, so `---` may only open it.", "train: {...} --- train: {...}",
     "one document, and --set for what differs"},
    {"duplicate-key", "A key stands twice in one map",
     "The message names both lines; which of the two is meant cannot be known.",
     "train: {steps: 4, steps: 5}", "train: {steps: 5}"},
    {"bad-key", "Something that cannot name a setting stands as a key",
     "Keys are plain words: no lists, maps, aliases or empty text.", "[a, b]: 1", "steps: 1"},
    {"tag", "A YAML tag without meaning", "Only !override is known, in files that include others.",
     "train: {steps: !!python/int 4}", "train: {steps: 4}"},
    {"recursive-alias", "An alias refers to a value that contains it", "Such a value has no end.",
     "log: &a [*a]", "log: &a {every: 1}"},
    {"merge-key", "A merge key takes something else than a map",
     "`<<` takes a map or a list of maps, usually through an alias.", "log: {<<: 3}",
     "log: {<<: *usual}"},
    {"unknown-key", "The section has no such key",
     "Every key is one of `trainctl schema` or an upstream spelling of `trainctl schema "
     "--upstream`. The help names the nearest known key.",
     "model: {num_layer: 4}", "model: {num_layers: 4}"},
    {"missing-key", "A required key is not given",
     "Keys marked required in docs/configuration.md have no default.", "train: {steps: 10}",
     "train: {steps: 10, global_batch_size: 8}"},
    {"wrong-type", "The value is of another type than the key takes",
     "Numbers are plain decimal numbers, booleans are true and false; text that looks like either "
     "must be quoted where text is due, and must not be where it is not.",
     "train: {steps: four}", "train: {steps: 4}"},
    {"bad-word", "The word is none of those that the key takes", "The message lists them.",
     "optimizer: {type: adan}", "optimizer: {type: adamw}"},
    {"out-of-range", "The value is outside of what the key allows",
     "The limits are those of docs/configuration.md; many are upstream's, as capacity_factor >= 1 "
     "and 0 < aux_loss_factor < 1 (MindFormers).",
     "moe: {aux_loss_factor: 0}", "moe: {aux_loss_factor: 0.05}"},
    {"internal-key", "The program sets this key itself",
     "It stands for a key that is internal upstream; only null is taken.",
     "offload: {context: true}", "offload: {context: null}"},
    {"callable", "A key that takes a Python function upstream",
     "YAML has no functions. The help names the built-in behaviour in `hooks` and the hook of the "
     "C++ interface that take its place; null is taken.",
     "parallel: {no_sync_func: nccl_no_sync}", "hooks: {no_sync: last_microbatch}"},
    {"two-spellings", "One concept is given twice with different values",
     "Upstream keys and ours may stand side by side, but must agree. Upstream the last writer "
     "wins in silence (comm_fusion and all_reduce_fusion_config, search_mode and "
     "auto_parallel_search_mode, full_batch and dataset_strategy, fp16 and bf16, ...).",
     "parallel: {model_parallel: 2, tensor_parallel: 4}", "parallel: {tensor_parallel: 4}"},
    {"deprecated", "The key is deprecated upstream",
     "It is taken, and the help names what to write.",
     "parallel: {auto_parallel_search_mode: recursive_programming}",
     "parallel: {search_mode: recursive_programming}"},
    {"not-carried", "A key of MindFormers' runner that is not carried over",
     "Keys of a MindFormers file that say nothing about the parallel configuration are remarked "
     "and left alone; the help names the key of ours that serves, if there is one.",
     "runner_config: {epochs: 1}", "train: {steps: 1000}"},
    {"bad-set", "--set is not PATH=VALUE",
     "The path is dotted, the value is YAML; a value with spaces is quoted for the shell.",
     "--set train.steps", "--set train.steps=100"},
    {"bad-variable", "A ${...} that is no variable",
     "${NAME} and ${NAME:-default} are replaced by the environment's value, which is text in "
     "UTF-8; $${ stands for ${ itself.",
     "train: {steps: ${1x}}", "train: {steps: ${STEPS:-100}}"},
    {"unset-variable", "The environment variable is not set",
     "A default after :- is taken where the variable is not set.", "train: {steps: ${STEPS}}",
     "train: {steps: ${STEPS:-100}}"},
    {"given-twice", "Two files give the same key",
     "A key given in several files is an error unless the later one says !override.",
     "include: base.yaml, with train: {steps: 5} in both",
     "include: base.yaml, with train: {steps: !override 5}"},
    {"nothing-overridden", "!override found nothing to override",
     "No included file gives this value, so the tag may be a leftover or the key misspelt.",
     "train: {steps: !override 5}", "train: {steps: 5}"},
    {"include-cycle", "A file includes itself", "The message shows the way round.",
     "a.yaml: {include: a.yaml}", "a.yaml: {include: b.yaml}"},
    {"include-depth", "Files include each other too deeply",
     "A file may be included by a file that is included, to a small depth.", "", ""},
    {"include-missing", "An included file cannot be read",
     "Paths are relative to the file that includes.", "include: absent.yaml", "include: base.yaml"},
    {"include-refused", "A text that is no file includes another",
     "Only a file can include another; --set cannot.", "--set include=base.yaml",
     "include: base.yaml"},
    {"include-size", "The files are too large together", "All files together have at most 1 MiB.",
     "", ""},
};

}  // namespace

std::span<const CodeNote> codes_of_text() { return notes; }

}  // namespace trainctl

#!/usr/bin/env bash
# Proves that a change of code changes nothing that can be seen: runs two builds on the same inputs and compares
# all that they print and write.
#   scripts/compare_golden.sh [--thorough] [--foreign FOLDER] BASE NEW
# BASE and NEW are build folders of this machine, or folders with their bin: trainctl and golden_dump. What a build
# gives is kept next to its bin, in golden, and is computed again only where a program or an input is newer.
# What changes on purpose is a row of tests/dumps/changes.txt. --thorough adds all configurations in all forms, the
# layouts of 8 ranks, `verify`, kernels (test_ops, where bin has it) and finished models; --foreign the files of other projects in FOLDER.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
thorough= foreign= given=()
while [ $# -gt 0 ]; do
  case "$1" in
    --thorough) thorough=1 ;;
    --foreign) foreign=$(realpath "$2") && shift ;;
    *) given+=("$(realpath "$1")") ;;
  esac
  shift
done
[ ${#given[@]} -eq 2 ] || { sed -n '2,9s/^# //p' "$0" >&2; exit 64; }
source=$PWD
rates=(cluster.matmul_flops=1e12 cluster.memory_bandwidth=1e11 cluster.latency=1e-5 cluster.bandwidth=1e10)

# Jobs are lines: the name of a file, then words of a shell: what is run, whose output and exit code go to the file.
job() { echo "$1 ${*:2}"; }
sets() { printf -- ' --set %s' "$@"; }

plan_jobs() {
  local file ranks name number bare bare_configs=build/golden-work/configs
  mkdir -p "$bare_configs"
  local variants=(
    "parallel.tensor_parallel=2 parallel.sequence_parallel=true"
    "parallel.tensor_parallel=2 parallel.sequence_parallel=true parallel.tp_comm_overlap.enable=true"
    "parallel.tensor_parallel=2 parallel.pipeline_stages=2 offload.enable=true offload.num_layers=1"
    "parallel.parallel_mode=semi_auto_parallel parallel.tensor_parallel=2 parallel.operator_splits.attention=tokens parallel.operator_splits.feed_forward=whole"
    "parallel.pipeline_stages=2 parallel.pipeline.scheduler=zb-h1 train.micro_batch_num=4"
    "parallel.pipeline_stages=2 parallel.pipeline.scheduler=zb-v parallel.virtual_pipeline_stages=2 train.micro_batch_num=4"
    "parallel.pipeline_stages=2 parallel.virtual_pipeline_stages=2 train.micro_batch_num=4"
    "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level=level3 parallel.parallel_optimizer.threshold=0"
    "parallel.pipeline.variable_seq_lengths=true parallel.pipeline_stages=2"
    "precision.compute=bf16 optimizer.type=sgd")
  for name in p2p all_gather a2a a2a+p2p; do
    variants+=("parallel.context_parallel=4 parallel.cp_comm_type=$name parallel.hierarchical_context_parallel_sizes=[2,2]"
      "parallel.context_parallel=2 parallel.tensor_parallel=2 parallel.cp_comm_type=$name")
  done
  for name in full norms qkv attention projection mlp activations norms+qkv+attention+mlp; do
    variants+=("parallel.tensor_parallel=2 parallel.sequence_parallel=true recompute.enable=true recompute.select=$name")
  done
  local experts=(
    "parallel.expert_parallel=2" "parallel.expert_parallel=2 parallel.tensor_parallel=2 parallel.sequence_parallel=true"
    "parallel.expert_parallel=2 parallel.tensor_parallel=2 parallel.expert_tensor_parallel=1"
    "parallel.expert_parallel=4 parallel.tensor_parallel=4 parallel.expert_tensor_parallel=2 parallel.sequence_parallel=true"
    "parallel.expert_parallel=2 moe.comp_comm_parallel=true" "parallel.expert_parallel=2 moe.first_dense_layers=1"
    "parallel.expert_parallel=2 parallel.tensor_parallel=2 moe.group_wise_a2a=true moe.comp_comm_parallel=true"
    "parallel.expert_parallel=2 moe.overlap_expert_parallel_comm=true train.micro_batch_num=4"
    "parallel.expert_parallel=2 moe.capacity_factor=1.5 precision.compute=bf16"
    "parallel.expert_parallel=2 moe.shared_expert_intermediate_size=64 moe.shared_expert_gate=true parallel.tensor_parallel=2"
    "parallel.expert_parallel=2 moe.first_dense_layers=1 recompute.enable=true recompute.select=norms+mlp+activations")
  for file in configs/*.yaml; do
    name=$(basename "$file" .yaml)
    for ranks in 1 2 4 8; do
      job "plan/$name-$ranks" "trainctl plan $file --world-size $ranks --format json"
    done
    job "plan/$name-rates" "trainctl plan $file --world-size 8 --format json $(sets "${rates[@]}")"
    job "print/$name.txt" "trainctl plan $file --world-size 8 --memory-model all $(sets "${rates[@]}")"
    job "print/$name-validate" "trainctl validate $file --format json"
    [[ $thorough || $name =~ ^(tiny|tiny-experts|verify-.*|gpt2-124m|llama3-8b)$ ]] || continue
    local all=("${variants[@]}")
    [[ $name =~ experts ]] && all+=("${experts[@]}")
    [[ $name =~ ^(tiny|gpt|verify-) ]] && all+=("recompute.enable=true recompute.select=auto recompute.memory_limit=1")
    # The model alone, since most variants break a rule with the layout that the file has.
    bare=$bare_configs/$name.yaml
    awk '/^[^ #]/ { skip = /^parallel:/ } !skip' "$file" | sed -E 's/,? *micro_batch_size: [0-9]+//' >"$bare"
    for number in "${!all[@]}"; do
      job "plan/$name-variant-$number" "trainctl plan $bare --world-size 8 --format json $(sets "${rates[@]}" train.global_batch_size=192 ${all[number]})"
    done
    job "print/$name.html" "trainctl plan $bare --world-size 8 --format html $(sets "${rates[@]}" parallel.tensor_parallel=2 train.global_batch_size=192)"
    job "print/$name.github" "trainctl plan $file --world-size 8 --format github $(sets parallel.context_parallel=3)"
    job "print/$name.groups" "trainctl plan $file --world-size 8 --groups tp"
  done
  job plan/llama3-8b-16384 "trainctl plan configs/llama3-8b.yaml --world-size 16384 --format json $(sets "${rates[@]}" parallel.tensor_parallel=8 parallel.pipeline_stages=4 train.global_batch_size=16384)"
  job print/search "trainctl plan configs/gpt.yaml --world-size 4 --explain $(sets parallel.parallel_mode=auto_parallel)"
  job print/diff "trainctl plan --diff configs/tiny.yaml configs/tiny-experts.yaml"
}

key_jobs() {
  local word file form
  for word in json json-schema markdown; do job "keys/schema-$word" "trainctl schema --format $word"; done
  for word in mindspore mindformers megatron; do job "keys/upstream-$word" "trainctl schema --upstream $word"; done
  job keys/codes "trainctl explain --list"
  for word in "" train report watch launch validate verify migrate explain plan data generate evaluate checkpoint schema completion bench devices; do
    job "keys/help-$word" "trainctl $word --help"
  done
  for word in bash zsh fish; do job "keys/completion-$word" "trainctl completion $word"; done
  for file in tests/reference/hugging_face/*/config.json ${foreign:+$(find "$foreign" -type f | sort)}; do
    case "$file" in
      *.json) form=hf ;;
      *.toml) form=torchtitan ;;
      *.py) form=nanogpt ;;
      *.sh) form=megatron-args ;;
      *) form=yaml ;;
    esac
    job "foreign/$(tr / _ <<<"${file#"${foreign:-tests}"/}")" "trainctl migrate --from $form '$file'"
  done
}

layout_jobs() {
  local name ranks
  for name in gpt2 llama experts; do
    for ranks in 1 2 4 ${thorough:+8}; do
      job "layouts/$name-$ranks" "golden_dump configs/verify-$name.yaml $ranks ${rates[*]}"
    done
  done
}

# Jobs about the results of the tests of operations: each case apart, at each level of the CPU and on the emulated device.
kernel_jobs() {
  [ -x "$bin/test_ops" ] || { echo "compare_golden: without kernels, $bin has no test_ops" >&2; return; }
  local level name setting device=TRAINCTL_CUDA_MODULE=$bin/libcuda_on_host.so
  for level in v3 avx512 avx512_bf16 amx device; do
    setting=TRAINCTL_CPU_LEVEL=$level
    if [ $level = device ]; then
      [ -f "${device#*=}" ] || continue
      setting="TRAINCTL_TEST_DEVICE=cuda $device"
    elif ! env "$setting" "$bin/test_ops" "layernorm*" >/dev/null 2>&1; then
      continue # this machine cannot use it
    fi
    "$bin/test_ops" --list-test-names-only | while read -r name; do
      [ -n "$name" ] || continue
      job "kernels/$level/$(tr -c 'a-zA-Z0-9\n' _ <<<"$name")" \
        "$setting TRAINCTL_HASH_VALUES=1 \$bin/test_ops $(printf %q "$(sed 's/[],[*\\]/\\&/g' <<<"$name")")"
    done
  done
}

# Each in a folder of its own; ranks are threads.
run_jobs() {
  local file options number=0
  while read -r file options; do
    job "runs/run-$((number += 1))" "a_run $file $options"
  done <<'END'
tiny
tiny --local-ranks 2 --set parallel.tensor_parallel=2 --set parallel.sequence_parallel=true --set optimizer.type=sgd
tiny --local-ranks 2 --set parallel.parallel_optimizer.enable=true --set parallel.parallel_optimizer.optimizer_level=level3 --set parallel.parallel_optimizer.threshold=0 --set precision.compute=bf16
gpt --local-ranks 2 --set parallel.pipeline_stages=2 --set train.micro_batch_num=4 --set recompute.enable=true
gpt --local-ranks 2 --set parallel.pipeline_stages=2 --set parallel.pipeline.scheduler=zb-v --set parallel.virtual_pipeline_stages=2 --set train.micro_batch_num=4
gpt --local-ranks 4 --set parallel.tensor_parallel=2 --set parallel.context_parallel=2
tiny-experts --local-ranks 2 --set parallel.expert_parallel=2
tiny-experts --local-ranks 4 --set parallel.pipeline_stages=2 --set parallel.expert_parallel=2 --set moe.first_dense_layers=1
tiny --set precision.compute=fp16 --set recompute.enable=true --set recompute.select=norms+attention+activations
quickstart --local-ranks 2 --set train.global_batch_size=4
END
}

verify_jobs() {
  local name type layouts
  for type in fp32 bf16; do
    while read -r name layouts; do
      job "verify/$name-$type" "trainctl verify configs/verify-$name.yaml --world-size 4 --layouts $layouts --format json --set precision.compute=$type | sed 's/\"seconds\": [0-9.e+-]*//'"
    done <<'END'
gpt2 dp4+m6,tp4+m2,tp2sp+dp2+m6+zero1,pp4+m4+1f1b,pp2+dp2+1f1b+m6+vp2,tp2sp+pp2+m4+zb-h1+recompute,dp2+cp2+m2+p2p,dp4+m2+zero3+offload,pp2+dp2+zb-v+m4,pp4+gpipe+m4+offload,dp4+m2+zero2+each_sum+fusion
llama tp4+m2,tp2sp+cp2+p2p+m2,cp4+p2p+m1,dp2+cp2+m2+a2a,tp4sp+m2,tp2+pp2+m4
experts dp4+ep4+m2,dp4+ep2+m6+zero1,tp2sp+dp2+ep2+m2,pp2+dp2+ep2+m4,cp4+ep2+p2p+m1,tp2+pp2+m4,dp4+m2+zero3
END
  done
}

# Jobs about finished models, in the folders that the runs have left.
model_jobs() {
  local number ranks folder
  for number in 1 2 4 7; do
    folder=build/golden-work/runs/run-$number/run
    job "models/$number-evaluate" "trainctl evaluate --run $folder --format json"
    for ranks in 1 2; do
      job "models/$number-generate-$ranks" "trainctl generate --run $folder --prompt License --max-tokens 100 --temperature 0 --local-ranks $ranks"
      job "models/$number-seed-$ranks" "trainctl generate --run $folder --prompt License --max-tokens 5 --seed 1 --local-ranks $ranks"
    done
  done
}

# a_run CONFIG OPTION...: trains a few steps in $name's folder, and prints a hash of each file, less its times.
a_run() {
  local folder=$work/$name
  mkdir -p "$folder" && cd "$folder" || return
  trainctl train "$source/configs/$1.yaml" --quiet --output run --stop-after 6 --set train.validate_every=3 \
    --set checkpoint.every=3 --set checkpoint.keep=9 "${@:2}"
  echo "code $?"
  sed -E 's/, "(ledger|mfu_peak)": \{[^}]*\}//g; s/, "(memory|mfu|step_seconds|time|tokens_per_second)": [0-9.e+-]+//g' \
    run/metrics.jsonl | sed -E 's/,"time":[0-9.]+//'
  grep cpu_level run/measured.json
  sed '1,/^},/d' run/measured.json # what follows the time line: memory and messages of ranks
  find run -type f \( -name config.yaml -o -name plan.json -o -path '*/checkpoints/*' \) ! -path '*/lease/*' |
    sort | xargs sha256sum
}

# One line of the lists above. `trainctl` and `golden_dump` are those of $bin.
do_job() {
  local name=${1%% *}
  mkdir -p "$(dirname "$out/$name")"
  { eval "${1#* }"; echo "code $?"; } >"$out/$name" 2>&1 </dev/null
}
trainctl() { "$bin/trainctl" "$@"; }
golden_dump() { "$bin/golden_dump" "$@"; }
export -f do_job trainctl golden_dump a_run
export source NO_COLOR=1

# dump BUILD: all lists, into BUILD/golden.
dump() {
  export bin=$1/bin out=$1/golden work
  local list="$thorough $foreign"
  if [ -f "$out/done" ] && [ "$(cat "$out/done")" = "$list" ] &&
    [ -z "$(find "$bin/trainctl" "$bin/golden_dump" scripts/compare_golden.sh configs tests/reference -newer "$out/done" -print -quit)" ]; then
    echo "compare_golden: $out is kept"
    return
  fi
  local start=$SECONDS
  work=$source/build/golden-work # the same for both: some of the output has its path
  rm -rf "$out" "$work" && mkdir -p "$out" "$work"
  { layout_jobs; plan_jobs; key_jobs; } | run_list
  # These use all cores themselves.
  { run_jobs; [ -z "$thorough" ] || { verify_jobs; kernel_jobs; }; } | run_list 1
  [ -z "$thorough" ] || model_jobs | run_list 1
  rm -rf "$work"
  local files well
  files=$(find "$out" -type f | wc -l)
  well=$(grep -lx 'code 0' -r "$out" | wc -l)
  echo "compare_golden: $files files in $out ($((SECONDS - start)) s), $well of commands that ended well"
  [ $((2 * well)) -gt "$files" ] || { echo "compare_golden: FAILED, most commands of $bin fail" >&2; exit 1; }
  echo "$list" >"$out/done"
}
run_list() { xargs -d '\n' -n 8 -P "${1:-$(nproc)}" bash -c 'for line; do do_job "$line"; done' _; }

for build in "${given[@]}"; do dump "$build"; done

# Rows of changes.txt: a pattern of names as the shell has them, then the reason.
failed=0
while read -r name; do
  reason=$(while read -r pattern why; do
    [[ $pattern != \#* && $name == $pattern ]] && echo "$why"
  done <tests/dumps/changes.txt)
  if [ -n "$reason" ]; then
    echo "compare_golden: $name changes on purpose: $reason"
  else
    echo "compare_golden: $name differs"
    failed=$((failed + 1))
    [ $failed -gt 3 ] || diff -N "${given[0]}/golden/$name" "${given[1]}/golden/$name" | cut -c1-200 | head -8
  fi
done < <(cd "${given[0]}/golden" && { find . -type f; cd "${given[1]}/golden" && find . -type f; } | sed 's/^..//' |
  sort -u | while read -r one; do cmp -s "${given[0]}/golden/$one" "${given[1]}/golden/$one" || echo "$one"; done)
[ $failed -eq 0 ] && echo "compare_golden: no difference" || echo "compare_golden: FAILED, $failed files differ"
[ $failed -eq 0 ]

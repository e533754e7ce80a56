#!/usr/bin/env bash
# Measures what threads that wait cost on a busy machine: with two busy loops running, generate (2M parameters), train (tiny
# and 2M) and bench step with the program's own number of threads and with one, in turns. With --large also train and
# bench step of GPT-2 124M. With --before, a trainctl of another commit joins, with OMP_WAIT_POLICY=passive and
# with GOMP_SPINCOUNT=1000; and the two programs are compared without the loops first.
#   scripts/bench_threads.sh [--pairs N] [--large] [--only NAMES] [--before PROGRAM] [BUILD_DIR]
#   --pairs N         default 5
#   --only NAMES      of generate, tiny, book (2M), bench, gpt2 (124M) and gpt2_bench, "tiny book" for two
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=5
large=0
only=
before=
build=build/release
while [ $# -gt 0 ]; do
  case $1 in
    --pairs) pairs=${2:?--pairs needs a number}; shift ;;
    --large) large=1 ;;
    --only) only=${2:?--only needs names}; shift ;;
    --before) before=$(realpath "${2:?--before needs a program}"); shift ;;
    -*) sed -n '2,8s/^# *//p' "$0" >&2; exit 64 ;;
    *) build=$1 ;;
  esac
  shift
done
now=$PWD/$build/bin/trainctl
configs=$PWD/configs
work=$(mktemp -d)
loops=()
trap 'for loop in "${loops[@]}"; do kill "$loop" 2>/dev/null || true; done; rm -rf "$work"' EXIT
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
export XDG_CACHE_HOME=$work/cache
cd "$work"

cat >book.yaml <<'BOOK'
model: {family: llama, num_layers: 4, hidden_size: 192, num_attention_heads: 4, seq_length: 256, vocab_size: 256}
data: {train: /usr/share/common-licenses, tokenizer: byte}
train: {steps: 12, global_batch_size: 16}
lr_schedule: {max_lr: 2.0e-3}
precision: {compute: bf16}
output: {dir: runs/book, overwrite: true}
checkpoint: {at_end: false}
BOOK
# By the older program, whose files the newer one reads too.
"${before:-$now}" train book.yaml --output runs/made --quiet

# The words of one run of each kind.
words_of() {
  case $1 in
    generate) echo "generate --run runs/made --prompt T --max-tokens 220 --temperature 0" ;;
    tiny) echo "train $configs/tiny.yaml --steps 150 --quiet --overwrite --set checkpoint.at_end=false" ;;
    book) echo "train book.yaml --quiet" ;;
    bench) echo "bench step --config book.yaml --pairs 3" ;;
    gpt2) echo "train $configs/gpt2-124m.yaml --steps 2 --quiet --overwrite --output runs/large --set" \
      "data={train:/usr/share/common-licenses,tokenizer:byte} --set train.validate_every=0 --set checkpoint.at_end=false" \
      "--set output.save_weights=false" ;;
    gpt2_bench) echo "bench step --config $configs/gpt2-124m.yaml --pairs 1 --set precision.compute=bf16" ;;
  esac
}
names=(generate tiny book bench)
[ $large -eq 0 ] || names+=(gpt2 gpt2_bench)
[ -z "$only" ] || read -ra names <<<"$only"

# Ten starts of generate are one run: one alone lasts less than the turns of a scheduler.
starts_of() { [ "$1" = generate ] && echo 10 || echo 1; }

# Seconds of one run of kind $1 by program $2; the words after that go before it (env NAME=VALUE) or, with --set, behind.
seconds() {
  local name=$1 program=$2 begin end start
  shift 2
  local -a line=("$program" $(words_of "$name"))
  case ${1:-} in
    --set) line+=("$@") ;;
    env) line=("$@" "${line[@]}") ;;
  esac
  begin=$(date +%s%N)
  for ((start = $(starts_of "$name"); start > 0; --start)); do
    "${line[@]}" >out 2>&1 || { cat out >&2; return 1; }
  done
  end=$(date +%s%N)
  awk -v t=$((end - begin)) 'BEGIN {printf "%.3f\n", t / 1e9}'
}

median() { sort -n "$1" | awk '{a[NR] = $1} END {printf "%.3f", (a[int((NR + 1) / 2)] + a[int((NR + 2) / 2)]) / 2}'; }
step() { echo "  $1, pair $2 of $pairs" >&2; }

if [ -n "$before" ]; then
  echo "nothing else running: median seconds now and before, and the median of their ratios (aim: at most 1.02)"
  for name in "${names[@]}"; do
    rm -f own old ratio
    for ((pair = 1; pair <= pairs; ++pair)); do
      step "$name" $pair
      one=$(seconds "$name" "$now")
      other=$(seconds "$name" "$before")
      echo "$one" >>own
      echo "$other" >>old
      awk -v a="$one" -v b="$other" 'BEGIN {print a / b}' >>ratio
    done
    printf '%-12s %8s %8s   %s\n' "$name" "$(median own)" "$(median old)" "$(median ratio)"
  done
fi

for _ in 1 2; do
  (while :; do :; done) &
  loops+=($!)
done
ways=(own one)
[ -z "$before" ] || ways+=(passive spin)
echo "with two busy loops running: median seconds, and own / the least of the others (aim: at most 1.1)"
printf '%-12s' ''
printf ' %8s' "${ways[@]}"
echo
for name in "${names[@]}"; do
  rm -f "${ways[@]}"
  for ((pair = 1; pair <= pairs; ++pair)); do
    step "$name" $pair
    for way in "${ways[@]}"; do
      case $way in
        own) seconds "$name" "$now" ;;
        one) seconds "$name" "$now" --set parallel.threads_per_rank=1 ;;
        passive) seconds "$name" "$before" env OMP_WAIT_POLICY=passive ;;
        spin) seconds "$name" "$before" env GOMP_SPINCOUNT=1000 ;;
      esac >>"$way"
    done
  done
  printf '%-12s' "$name"
  least=
  for way in "${ways[@]}"; do
    printf ' %8s' "$(median "$way")"
    [ "$way" = own ] || least=$(awk -v a="$(median "$way")" -v b="${least:-1e9}" 'BEGIN {print a < b ? a : b}')
  done
  awk -v a="$(median own)" -v b="$least" 'BEGIN {printf "   %.2f\n", a / b}'
done

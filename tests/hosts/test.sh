#!/usr/bin/env bash
# One case of what becomes of a run when a host is lost, on hosts made of namespaces (lab.sh).
#   TRAINCTL=PROGRAM test.sh CASE [thorough]     the cases are the functions below; without one they are listed. With
#                                             `thorough` it runs only where TRAINCTL_THOROUGH is set
# Returns 77, with the reason, where such hosts cannot be made. scripts/install.sh --hosts installs what is needed.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lab.sh"

deadline=10 # seconds, of every run
failed=0

fail() {
  echo "FAILED: $*"
  failed=1
}

# is NAME FOUND WANTED
is() { if [ "$2" = "$3" ]; then echo "ok: $1 is $2"; else fail "$1 is '$2', not '$3'"; fi; }

# says PATTERN: what launch or the ranks have said.
says() { if grep -qE -- "$1" out; then echo "ok: says $1"; else fail "nothing says: $1"; fi; }
says_not() { if grep -qE -- "$1" out; then fail "something says: $1"; fi; }

# within NAME SECONDS MOST
within() { if [ "$2" -le "$3" ]; then echo "ok: $1 took $2 s of at most $3 s"; else fail "$1 took $2 s, more than $3 s"; fi; }

configure() {
  cat >c.yaml <<YAML
model: {family: gpt2, num_layers: 2, hidden_size: 64, num_attention_heads: 4, seq_length: 64, vocab_size: 256}
data: {train: /usr/share/common-licenses, tokenizer: byte}
train: {steps: 100000, global_batch_size: 16}
lr_schedule: {style: constant, max_lr: 1.0e-3}
checkpoint: {every: 20}
parallel: {deadline_seconds: $deadline, tensor_parallel: 2, threads_per_rank: 1}
output: {dir: $lab/shared/run}
YAML
  printf '%s slots=2\n' "$@" >hosts.txt
}

# launch WORDS...: on n1, in the background, without a word on the screen.
launch() {
  on n1 env OMPI_MCA_plm_rsh_agent="$lab/ssh" "$TRAINCTL" launch --hostfile hosts.txt -- train --config c.yaml "$@" >out 2>&1 &
  job=$!
}

# A session's end is a line, too.
steps() {
  local count
  count=$(grep -c '"loss"' run/metrics.jsonl 2>/dev/null)
  echo "${count:-0}"
}

wait_for_steps() {
  for _ in $(seq 600); do
    [ "$(steps)" -ge "$1" ] && return 0
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  fail "the run has $(steps) steps, not $1"
  return 1
}

# Waits for launch, at most MOST seconds; sets `code` and `seconds`.
wait_for_end() {
  local most=$1 begin=$SECONDS
  while kill -0 "$job" 2>/dev/null && [ $((SECONDS - begin)) -le "$most" ]; do sleep 0.1; done
  seconds=$((SECONDS - begin))
  if kill -0 "$job" 2>/dev/null; then
    fail "launch still runs after $most s"
    code=none
    return 1
  fi
  wait "$job"
  code=$?
}

# No rank of the run is left on a host that still lives.
nobody_on() {
  local left
  sleep 1
  left=$(on "$1" pgrep -c -f -- "train --config c.yaml")
  is "the number of processes left on $1" "$left" 0
}

train_before() {
  make_hosts 2 || return 1
  configure n1 n2
  launch
  wait_for_steps 30
}

# Each host has the address 172.17.0.1, which leads a rank to itself.
case_docker_bridge() {
  make_hosts 2
  configure n1 n2
  with_docker n1
  with_docker n2
  launch --stop-after 5
  wait_for_end 60
  is "the code" "$code" 0
  says "the hosts share the network 10.77.0.0/24"
  says "OMPI_MCA_btl_tcp_if_include=10.77.0.0/24"
}

# A lost host with mpirun alone: nobody waits for ever, and every rank says what to set.
case_docker_bridge_mpirun() {
  make_hosts 2
  configure n1 n2
  with_docker n1
  with_docker n2
  on n1 env OMPI_MCA_plm_rsh_agent="$lab/ssh" mpirun --allow-run-as-root --bind-to none -n 4 --hostfile hosts.txt \
    "$TRAINCTL" train --config c.yaml --stop-after 5 >out 2>&1 &
  job=$!
  wait_for_end $((deadline + 20))
  is "the code" "$code" 76
  for rank in 0 1 2 3; do says "rank $rank of 4 .host n[12].: MPI has not connected all ranks within 10"; done
  says "docker0 172.17.0.1/16.*set OMPI_MCA_btl_tcp_if_include"
}

case_ssh_refused() {
  mkdir -p "$lab/n2"
  touch "$lab/n2/no-sshd"
  make_hosts 2
  configure n1 n2
  launch
  wait_for_end 20
  is "the code" "$code" 69
  says "mpirun has started no rank: ssh: connect to host n2 port 22: Connection refused"
  says_not "ended by signal"
}

# Open MPI has no place for its files on one of the hosts.
case_tmp_full() {
  make_hosts 2
  configure n1 n2
  on n2 sh -c 'mount -t tmpfs -o size=64k tmpfs /tmp; head -c 1000000 /dev/zero >/tmp/full 2>/dev/null'
  launch
  wait_for_end 60
  is "the code" "$code" 74
  says "rank [23] .host n2.: MPI needs place for its files in /tmp: 0 B free"
  nobody_on n1
}

# A host that takes the connection and answers nothing.
case_ssh_hangs() {
  make_hosts 2
  configure n1 n2
  freeze n2
  on n1 env OMPI_MCA_plm_rsh_agent="$lab/ssh" "$TRAINCTL" launch --start-seconds 5 --hostfile hosts.txt -- train --config c.yaml >out 2>&1 &
  job=$!
  wait_for_end 20
  is "the code" "$code" 69
  says "no rank has begun within 5.*n1, n2|ssh"
}

case_crashed() {
  train_before || return
  crash n2
  wait_for_end 30
  within "the end after a crash" "$seconds" 20
  is "the code" "$code" 76
  says_not "ended by signal"
  nobody_on n1
  goes_on
}

case_cut() {
  train_before || return
  part n2
  wait_for_end 30
  within "the end after a cut" "$seconds" 20
  is "the code" "$code" 76
  nobody_on n1
}

case_hung() {
  train_before || return
  freeze n2
  wait_for_end $((deadline + 30))
  within "the end after all of a host is stopped" "$seconds" $((deadline + 12))
  is "the code" "$code" 76
  says "hang: rank 0 .host n1.*waits in .* for rank [23] .host n2"
  nobody_on n1
}

# Only mpirun's daemon there: the run ends as it should, mpirun would not.
case_daemon_hung() {
  make_hosts 2
  configure n1 n2
  launch --steps 150
  wait_for_steps 30 || return
  on n2 pkill -STOP orted
  wait_for_end 90
  is "the code" "$code" 0
  says "mpirun has not ended"
  is "the steps" "$(steps)" 150
  nobody_on n1
}

case_rank_killed() {
  train_before || return
  on n2 pkill -KILL -n -x trainctl
  wait_for_end 20
  within "the end after a rank was killed" "$seconds" 10
  is "the code" "$code" 137
  says "ended by SIGKILL"
  says_not "leaves with 75"
  nobody_on n1
}

# Repeating the command resumes the run, here with a host that was not lost.
goes_on() {
  local before
  before=$(steps)
  boot n2
  launch --stop-after 5
  wait_for_end 90
  is "the code of the same command" "$code" 0
  [ "$(steps)" -ge $((before - 20)) ] || fail "$before steps have become $(steps)"
}

slurm_job() { slurm_on n1 scontrol show job "$1"; }

# srun as it is by default, and with PMIx; train.sbatch on a Slurm with no default for MPI.
case_slurm() {
  make_hosts 2
  configure n1 n2
  make_slurm 2 || { fail "no Slurm"; return; }
  slurm_on n1 timeout 60 srun -N2 --ntasks-per-node=2 "$TRAINCTL" train --config c.yaml --stop-after 5 >out 2>&1
  is "the code of srun without PMIx" $? 69
  says "without PMIx.*use srun --mpi=pmix"
  is "the lines of srun's ranks" "$(grep -c PMIx out)" 1
  slurm_on n1 timeout 60 srun --mpi=pmix -N2 --ntasks-per-node=2 "$TRAINCTL" train --config c.yaml --stop-after 5 >out 2>&1
  is "the code of srun with PMIx" $? 0
  # The allocation says how many ranks, and on which hosts.
  slurm_on n1 timeout 60 salloc -N2 --ntasks-per-node=2 "$TRAINCTL" launch -- train --config c.yaml --stop-after 5 >out 2>&1
  is "the code of launch in an allocation" $? 0
  says "mpirun -n 4 "
  says "OMPI_MCA_btl_tcp_if_include=10.77.0.0/24"
  batch --stop-after 5
  wait_for_job 60
  is "the job" "$state" COMPLETED
  says "left of the Slurm job"
  is "the steps" "$(steps)" 15
}

exclude=
batch() {
  cp "$source/scripts/slurm/train.sbatch" .
  job=$(TRAINCTL=$TRAINCTL slurm_on n1 sbatch --parsable --export=ALL --exclude="$exclude" --nodes=2 --ntasks-per-node=2 -o "$lab/shared/out" train.sbatch c.yaml "$@")
}

wait_for_job() {
  for _ in $(seq $(($1 * 5))); do
    state=$(slurm_job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p')
    case $state in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return ;; esac
    sleep 0.2
  done
}

# lose_node WHICH: a node of a running job is lost, the `first` (with rank 0 and the job's script) or the `last`. The job
# is queued again, and resumes on the nodes that are left. The controller is on n1, which the job
# does not use.
lose_node() {
  local before nodes
  make_hosts 4
  configure n2 n3
  make_slurm 4 || { fail "no Slurm"; return; }
  exclude=n1
  batch
  for _ in $(seq 300); do
    [ "$(steps)" -ge 60 ] && break
    sleep 0.2
  done
  before=$(steps)
  [ "$before" -ge 60 ] || { fail "the job has $before steps"; return; }
  nodes=$(slurm_on n1 squeue --noheader --format=%N)
  nodes=$(slurm_on n1 scontrol show hostnames "$nodes")
  if [ "$1" = first ]; then crash "$(head -n 1 <<<"$nodes")"; else crash "$(tail -n 1 <<<"$nodes")"; fi
  for _ in $(seq 1500); do
    [ "$(steps)" -gt $((before + 20)) ] && break
    sleep 0.2
  done
  echo "on" $nodes "to step $before, then on $(slurm_on n1 squeue --noheader --format=%N) to $(steps)"
  [ "$(steps)" -gt $((before + 20)) ] || fail "the job does not go on: $(slurm_job "$job")"
}
case_slurm_lost_node() { lose_node last; }
case_slurm_lost_first_node() { lose_node first; }

reason_to_skip() {
  [ "$(id -u)" -eq 0 ] || { echo "hosts of namespaces need root"; return; }
  local program
  for program in /usr/sbin/sshd ssh ip nft nsenter pgrep mpirun; do
    command -v "$program" >/dev/null || { echo "$program is missing: scripts/install.sh --hosts"; return; }
  done
  unshare --net --mount --pid --ipc --uts --fork --mount-proc sh -c 'mount -t tmpfs tmpfs /run && ip netns add host1 &&
    ip link add br0 type bridge && ip link add p1 type veth peer name eth0 netns host1 && ip netns exec host1 nft add table inet t' \
    >/dev/null 2>&1 || { echo "namespaces, bridges or nftables are not allowed here"; return; }
  case $1 in slurm*) ;; *) return ;; esac
  for program in slurmctld slurmd srun munged; do
    command -v "$program" >/dev/null || { echo "$program is missing: scripts/install.sh --hosts"; return; }
  done
}

if [ "${1:-}" = inside ]; then
  "case_$2"
  [ $failed -eq 0 ] || { echo "--- what was said"; cat out; }
  exit $failed
fi
name=${1:-}
if ! declare -F "case_$name" >/dev/null; then
  declare -F | sed -n 's/^declare -f case_//p'
  exit 64
fi
if [ "${2:-}" = thorough ] && [ "${TRAINCTL_THOROUGH:-0}" = 0 ]; then
  echo "skipped: in a thorough run only"
  exit 77
fi
reason=$(reason_to_skip "$name")
if [ -n "$reason" ]; then
  echo "skipped: $reason"
  exit 77
fi
enter_lab "$here/test.sh" "$name"

# Hosts made of namespaces on this machine, for sourcing by test.sh. Each has its own network, name, processes, mounts,
# IPC, /dev/shm, /tmp and /run, and an sshd; all meet on a bridge. The whole lab is inside namespaces of its own (enter_lab),
# so that labs do not meet, the machine keeps nothing, and all processes end with the test.
#
#   enter_lab SCRIPT WORDS...     runs `SCRIPT WORDS...` inside a new lab, in $lab/shared, and returns its code
#   make_hosts N                  n1 ... nN at 10.77.0.1 ...
#   on HOST CMD...                runs CMD in a host, as root, in $lab/shared, which all hosts see
#   crash HOST                    packets are dropped, then every process ends: what others see of a power failure
#   boot HOST                     a crashed host comes back, with new processes and an empty /tmp
#   part HOST, join HOST          packets are dropped, the link stays; and no longer
#   freeze HOST                   every process of the host is stopped
#   with_docker HOST              gives it a bridge with 172.17.0.1, as Docker does
lab=/mnt/lab
programs=$lab/bin
source=$lab/source # of the project
scripts=$source/tests/hosts

enter_lab() {
  local script=$1
  shift
  exec unshare --net --mount --pid --ipc --uts --fork --kill-child=SIGKILL --mount-proc \
    bash -c '. "$0"; furnish "$@"' "$(dirname "$script")/lab.sh" "$script" "$@"
}

# Nothing of the machine's own /run and /tmp is used; the program and these scripts may lie below /tmp.
furnish() {
  local script=$1 here
  shift
  here=$(dirname "$script")
  mount --make-rprivate /
  mount -t tmpfs -o mode=755 tmpfs /mnt
  mkdir -p "$programs" "$source" "$lab/shared"
  mount --bind "$(dirname "$TRAINCTL")" "$programs"
  mount --bind "$here/../.." "$source"
  mount -t tmpfs -o mode=755 tmpfs /run
  mkdir -p /run/sshd /run/netns
  ip link set lo up
  cd "$lab/shared"
  export TRAINCTL=$programs/$(basename "$TRAINCTL")
  bash "$scripts/$(basename "$script")" inside "$@"
}

make_hosts() {
  local count=$1 i
  ssh-keygen -q -t ed25519 -N '' -f "$lab/key"
  ssh-keygen -q -t ed25519 -N '' -f "$lab/hostkey"
  cat >"$lab/sshd_config" <<CFG
Port 22
HostKey $lab/hostkey
AuthorizedKeysFile $lab/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile /run/sshd.pid
UseDNS no
CFG
  cat >"$lab/ssh" <<CFG
#!/bin/sh
exec ssh -i $lab/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=10 "\$@"
CFG
  chmod +x "$lab/ssh"
  ip link add br0 type bridge forward_delay 0 stp_state 0
  ip link set br0 up
  echo "127.0.0.1 localhost" >"$lab/hosts"
  for i in $(seq "$count"); do echo "10.77.0.$i n$i" >>"$lab/hosts"; done
  for i in $(seq "$count"); do
    mkdir -p "$lab/n$i"
    ip netns add "n$i"
    ip link add "p$i" type veth peer name eth0 netns "n$i"
    ip link set "p$i" master br0 up
    ip -n "n$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "n$i" link set eth0 up
    start_host "n$i"
  done
}

start_host() {
  local name=$1 outer
  rm -f "$lab/$name/ready"
  ip netns exec "$name" unshare --uts --pid --mount --ipc --fork --kill-child=SIGKILL \
    bash -c '. "$0"; run_host "$1"' "$scripts/lab.sh" "$name" </dev/null >"$lab/$name/init.log" 2>&1 &
  outer=$!
  for _ in $(seq 200); do
    [ -e "$lab/$name/ready" ] && break
    sleep 0.05
  done
  [ -e "$lab/$name/ready" ] || { cat "$lab/$name/init.log"; return 1; }
  cut -d' ' -f1 </proc/$outer/task/$outer/children >"$lab/$name/pid"
}

# Process 1 of a host.
run_host() {
  local name=$1
  hostname "$name"
  mount --make-rprivate /
  mount -t proc proc /proc
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  mount -t tmpfs -o mode=1777 tmpfs /tmp
  mount -t tmpfs -o mode=755 tmpfs /run
  mount --bind "$lab/hosts" /etc/hosts
  echo "$name" >"$lab/$name/hostname"
  mount --bind "$lab/$name/hostname" /etc/hostname
  mkdir -p /run/sshd /run/lock
  ip link set lo up
  [ -e "$lab/$name/no-sshd" ] || /usr/sbin/sshd -f "$lab/sshd_config"
  touch "$lab/$name/ready"
  while :; do
    sleep 3600 &
    wait $!
  done
}

on() {
  local host=$1
  shift
  nsenter -t "$(cat "$lab/$host/pid")" --net --uts --pid --mount --ipc \
    sh -c 'cd "$0" && exec "$@"' "$lab/shared" "$@"
}

part() {
  ip netns exec "$1" nft -f - <<'NFT'
table inet cut {
  chain i { type filter hook input priority 0; iif "eth0" drop; }
  chain o { type filter hook output priority 0; oif "eth0" drop; }
}
NFT
}

join() { ip netns exec "$1" nft delete table inet cut; }

crash() {
  part "$1"
  kill -KILL "$(cat "$lab/$1/pid")"
}

boot() {
  join "$1" 2>/dev/null || true
  start_host "$1"
}

# From outside, as process 1 of a host cannot be stopped from inside.
freeze() {
  local pid
  for pid in $(processes_of "$1"); do kill -STOP "$pid" 2>/dev/null || true; done
}

# All processes of a host, as the lab numbers them.
processes_of() {
  local space pid
  space=$(readlink "/proc/$(cat "$lab/$1/pid")/ns/pid")
  for pid in /proc/[0-9]*; do
    [ "$(readlink "$pid/ns/pid" 2>/dev/null)" = "$space" ] && echo "${pid#/proc/}"
  done
}

with_docker() {
  ip -n "$1" link add docker0 type bridge
  ip -n "$1" addr add 172.17.0.1/16 dev docker0
  ip -n "$1" link add veth0 type veth peer name veth1
  ip -n "$1" link set veth0 master docker0 up
  ip -n "$1" link set veth1 up
  ip -n "$1" link set docker0 up
}

# A real Slurm: slurmctld on n1, a slurmd on each of N hosts, munge with one key.
slurm_on() {
  SLURM_CONF=$lab/slurm.conf on "$@"
}

make_slurm() {
  local count=$1 i
  head -c 1024 /dev/urandom >"$lab/munge.key"
  chmod 400 "$lab/munge.key"
  mkdir -p "$lab/state"
  cat >"$lab/slurm.conf" <<CFG
ClusterName=lab
SlurmctldHost=n1
SlurmUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=15
MessageTimeout=10
KillWait=5
InactiveLimit=0
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
StateSaveLocation=$lab/state
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$lab/slurmctld.log
SlurmdLogFile=/tmp/slurmd.log
SlurmdParameters=config_overrides
NodeName=n[1-$count] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
CFG
  echo "CgroupPlugin=cgroup/v1" >"$lab/cgroup.conf"
  for i in $(seq "$count"); do
    start_munge "n$i"
  done
  on n1 slurmctld -c -f "$lab/slurm.conf"
  for i in $(seq "$count"); do start_slurmd "n$i"; done
  for _ in $(seq 100); do
    [ "$(slurm_on n1 sinfo -h -o %T 2>/dev/null)" = idle ] && return 0
    sleep 0.2
  done
  echo "Slurm does not start:"
  cat "$lab/slurmctld.log"
  return 1
}

start_munge() {
  on "$1" sh -c "mkdir -p /run/munge && chmod 755 /run/munge && munged --force --num-threads=2 --key-file=$lab/munge.key \
    --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/pid --log-file=/run/munge/log --seed-file=/run/munge/seed"
}

# slurmd wants a file system of cgroups even where nothing uses it.
start_slurmd() {
  on "$1" sh -c "mount -t tmpfs cgroup_root /sys/fs/cgroup; mkdir -p /tmp/slurmd; slurmd -f $lab/slurm.conf -N $1"
}

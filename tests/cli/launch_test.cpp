// launch --dry-run with stand-ins for each mpirun there is.
#include <unistd.h>

#include <filesystem>

#include "catch.h"
#include "process.h"

namespace {

using Words = std::vector<std::string>;

/// An mpirun that only prints its version, first in PATH.
std::string path_with_mpirun(const TempDir& dir, const std::string& version) {
  const std::string program = dir.write("mpirun", "#!/bin/sh\necho '" + version + "'\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return "PATH=" + dir.path().string() + ":/usr/bin:/bin";
}

Outcome dry_run(const std::string& version, std::vector<std::string> options = {},
                std::vector<std::string> environment = {}) {
  const TempDir dir;
  environment.push_back(path_with_mpirun(dir, version));
  std::vector<std::string> words = {"launch", "-n", "8", "--dry-run"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "train", "--config", "my gpt.yaml"});
  return trainctl(words, environment);
}

const std::string open_mpi_4 = "mpirun (Open MPI) 4.1.4";
const std::string open_mpi_5 = "mpirun (Open MPI) 5.0.3";
const std::string mpich = "HYDRA build details:";

}  // namespace

TEST_CASE("the line is complete, quoted and on standard output") {
  const Outcome outcome = dry_run(open_mpi_4);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.starts_with("mpirun -n 8 "));
  CHECK(outcome.out.ends_with("train --config 'my gpt.yaml'\n"));
  CHECK(contains(outcome.out, TRAINCTL_PROGRAM));
  CHECK(contains(outcome.out, "--bind-to none"));
  CHECK(contains(outcome.out, "--allow-run-as-root") == (geteuid() == 0));
}

TEST_CASE("each mpirun gets the options it knows") {
  CHECK(contains(dry_run(open_mpi_4).out, "--oversubscribe"));
  CHECK(contains(dry_run(open_mpi_5).out, "--map-by :OVERSUBSCRIBE"));
  CHECK_FALSE(contains(dry_run(open_mpi_5).out, "--oversubscribe"));
  const std::string hydra = dry_run(mpich).out;
  CHECK(contains(hydra, "-bind-to none"));
  CHECK_FALSE(contains(hydra, "--allow-run-as-root"));
}

TEST_CASE("with a host file its slots decide, and variables travel") {
  const TempDir dir;
  const std::string hosts = dir.write("hosts", "a slots=4\nb slots=4\n");
  const Outcome outcome =
      dry_run(open_mpi_4, {"--hostfile", hosts}, {"NCCL_DEBUG=INFO", "OMP_WAIT_POLICY=active"});
  CHECK(contains(outcome.out, "--hostfile " + hosts));
  CHECK(contains(outcome.out, "-x NCCL_DEBUG"));
  CHECK(contains(outcome.out, "-x OMP_WAIT_POLICY"));
  CHECK_FALSE(contains(outcome.out, "--oversubscribe"));
  const Outcome absent = dry_run(open_mpi_4, {"--hostfile", dir / "absent"});
  CHECK(absent.exit_code == 66);
  CHECK(contains(absent.err, "absent"));
}

TEST_CASE("no mpirun, or one that nobody knows") {
  const TempDir empty;
  const Outcome none = trainctl({"launch", "-n", "2", "--", "train", "--config", "a.yaml"},
                                {"PATH=" + empty.path().string()});
  CHECK(none.exit_code == 69);
  CHECK(contains(none.err, "openmpi-bin"));
  const Outcome strange = dry_run("Acme launcher 1.0");
  CHECK(strange.exit_code == 69);
  CHECK(contains(strange.err, "Acme launcher 1.0"));
}

TEST_CASE("several hosts: a lost one is soon seen, and the user's settings win") {
  const TempDir dir;
  const std::string hosts = dir.write("hosts", "# two\na slots=3\n\nme@b slots = 2 max_slots=9\n");
  const Words file = {"--hostfile", hosts};
  const Outcome plain = dry_run(open_mpi_4, file);
  CHECK(plain.out.starts_with("env OMPI_MCA_oob_tcp_keepalive_time=5 "));
  CHECK(contains(plain.out,
                 "OMPI_MCA_oob_tcp_keepalive_intvl=2 OMPI_MCA_oob_tcp_keepalive_probes=3 "));
  const Outcome given = dry_run(open_mpi_4, file, {"OMPI_MCA_oob_tcp_keepalive_time=60"});
  CHECK_FALSE(contains(given.out, "keepalive_time"));
  CHECK(contains(dry_run(open_mpi_5, file).out, "PRTE_MCA_oob_tcp_keepalive_time=5 "));
  CHECK_FALSE(contains(dry_run(mpich, file).out, "keepalive"));
  CHECK_FALSE(contains(dry_run(open_mpi_4).out, "keepalive"));
  // Names that lead nowhere share no network.
  CHECK_FALSE(contains(plain.out, "if_include"));
}

TEST_CASE("variables that ranks on other hosts need are exported") {
  const TempDir dir;
  const std::string hosts = dir.write("hosts", "a slots=4\nb slots=4\n");
  const Words given = {"UCX_TLS=tcp",  "FI_PROVIDER=tcp", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                       "TRAINCTL_X=1", "HF_HOME=/h",      "MINE=1"};
  const Words options = {"--hostfile", hosts, "--export", "MINE", "--export", "HOME"};
  const Outcome outcome = dry_run(open_mpi_4, options, given);
  INFO(outcome.out);
  for (const char* name : {"UCX_TLS", "FI_PROVIDER", "CUDA_DEVICE_ORDER", "TRAINCTL_X", "HF_HOME",
                           "XDG_CACHE_HOME", "MINE", "HOME"}) {
    CHECK(contains(outcome.out, " -x " + std::string(name) + " "));
  }
  CHECK_FALSE(contains(dry_run(open_mpi_4, {}, given).out, "UCX_TLS"));
  CHECK(contains(dry_run(mpich, options, given).out, " -genv MINE 1 "));
  const Outcome unknown = dry_run(open_mpi_4, {"--export", "NO_SUCH_VARIABLE"});
  CHECK(unknown.exit_code == exits::usage);
  CHECK(contains(unknown.err, "--export NO_SUCH_VARIABLE"));
}

TEST_CASE("without -n the host file or the batch system says how many ranks") {
  const TempDir dir;
  const std::string hosts = dir.write("hosts", "a slots=3\nb slots=2\n");
  const auto line = [&](const Words& options, const Words& environment) {
    Words all = environment;
    all.push_back(path_with_mpirun(dir, open_mpi_4));
    Words words = {"launch", "--dry-run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "train", "--config", "a.yaml"});
    return trainctl(words, all);
  };
  CHECK(contains(line({"--hostfile", hosts}, {}).out, "mpirun -n 5 "));
  CHECK(contains(line({"-n", "4", "--hostfile", hosts}, {}).out, "mpirun -n 4 "));
  CHECK(contains(line({}, {"OMPI_MCA_orte_default_hostfile=" + hosts}).out, "mpirun -n 5 "));
  const Words slurm = {"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=2(x3),1"};
  const Outcome allocated = line({}, slurm);
  CHECK(contains(allocated.out, "mpirun -n 7 "));
  CHECK_FALSE(contains(allocated.out, "--oversubscribe"));
  const std::string nodes = dir.write("nodes", "a\na\nb\n");
  CHECK(contains(line({}, {"PBS_JOBID=1", "PBS_NODEFILE=" + nodes}).out, "mpirun -n 3 "));

  const Outcome missing = line({}, {});
  CHECK(missing.exit_code == exits::usage);
  CHECK(contains(missing.err, "-n N"));
  const std::string unsaid = dir.write("unsaid", "a slots=3\nb\n");
  CHECK(line({"--hostfile", unsaid}, {}).exit_code == exits::usage);
  CHECK(contains(line({"--hostfile", unsaid}, {}).err, "does not say how many"));
  const Outcome wrong = line({"--hostfile", dir.write("wrong", "a\nb slots=x\n")}, {});
  CHECK(wrong.exit_code == exits::bad_data);
  CHECK(contains(wrong.err, "wrong:2: "));
  CHECK(contains(wrong.err, "'x'"));
  CHECK(line({"--hostfile", dir.write("empty", "# none\n")}, {}).exit_code == exits::bad_data);
}

TEST_CASE("help of the command to start") {
  const TempDir dir;
  const Outcome outcome =
      trainctl({"launch", "-n", "2", "--", "train", "--help"}, {path_with_mpirun(dir, open_mpi_4)});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "--stop-after"));
}

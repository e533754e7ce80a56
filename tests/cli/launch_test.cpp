// launch --dry-run with stand-ins for each mpirun there is.
#include <unistd.h>

#include <filesystem>

#include "catch.h"
#include "process.h"

namespace {

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

TEST_CASE("launch runs mpirun and keeps its exit code") {
  const TempDir dir;
  const std::string program =
      dir.write("mpirun", "#!/bin/sh\n[ \"$1\" = --version ] && echo '" + open_mpi_4 +
                              "' && exit 0\necho ran; exit 9\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const Outcome outcome = trainctl({"launch", "-n", "2", "--", "train", "--config", "a.yaml"},
                                   {"PATH=" + dir.path().string() + ":/usr/bin:/bin"});
  CHECK(outcome.exit_code == 9);
  CHECK(outcome.out == "ran\n");
  CHECK(contains(outcome.err, "mpirun -n 2 "));
}

#include "comm/mpi/mpi_check.h"

#include <string>

#include "base/error.h"

namespace trainctl {

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(ExitCode::peer,
              "MPI: " + std::string(text, static_cast<std::size_t>(length)) + ", from " + call);
}

void check_length(const MPI_Status& status, std::int64_t expected) {
  int length = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
  if (length == expected) return;
  throw Error(ExitCode::peer, "MPI: rank " + std::to_string(status.MPI_SOURCE) +
                                  " of a group sends " + std::to_string(length) + " bytes where " +
                                  std::to_string(expected) + " are expected");
}

}  // namespace trainctl

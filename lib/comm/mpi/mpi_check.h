// Failures of MPI calls as exceptions. Only files named mpi_* include mpi.h.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface only; the old C++ interface causes warnings
#include <mpi.h>

#include <cstdint>

namespace trainctl {

/// Throws Error{peer} with MPI's text and the call unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);
/// Throws Error{peer} unless exactly `expected` bytes were received.
void check_length(const MPI_Status& status, std::int64_t expected);

}  // namespace trainctl

#define MPI_CHECK(call) ::trainctl::check_mpi((call), #call)

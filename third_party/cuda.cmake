# The CUDA compiler and toolkit (12.0 or newer) and NCCL (2.18 or newer). TRAINCTL_HAVE_CUDA is set
# if all are found; lib/cuda_module.cmake then builds the CUDA module. Otherwise the build is CPU-only.
# CMAKE_CUDA_ARCHITECTURES (or CUDAARCHS in the environment), CMAKE_CUDA_COMPILER, CUDAToolkit_ROOT and NCCL_ROOT work as usual.
# TRAINCTL_CUDA_HEADERS and NCCL_INCLUDE are set where there are headers: enough for tests/cuda_on_host.
# CUDNN_INCLUDE is set where there are those of cuDNN (9.8 or newer); the library is opened at run time.
set(TRAINCTL_HAVE_CUDA OFF)
set(CUDNN_INCLUDE "")
if(NOT TRAINCTL_CUDA)
  return()
endif()
find_path(TRAINCTL_CUDA_HEADERS cublasLt.h HINTS ${CUDAToolkit_ROOT} ENV CUDA_HOME ENV CUDA_PATH
          PATHS /usr/local/cuda PATH_SUFFIXES include)
find_path(TRAINCTL_CUDNN_HEADERS cudnn_graph.h HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ${TRAINCTL_CUDA_HEADERS}
          PATH_SUFFIXES include)
if(TRAINCTL_CUDNN_HEADERS)
  file(STRINGS ${TRAINCTL_CUDNN_HEADERS}/cudnn_version.h numbers REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
  string(REPLACE ";" "." cudnn_version "${numbers}")
  if(cudnn_version VERSION_GREATER_EQUAL 9.8)
    set(CUDNN_INCLUDE ${TRAINCTL_CUDNN_HEADERS})
    message(STATUS "cuDNN's headers: ${cudnn_version}")
  endif()
endif()
if(NOT CUDNN_INCLUDE)
  message(STATUS "No headers of cuDNN 9.8 or newer: attention by our kernels only")
endif()

# Pass it through the environment, so that check_language tries the compiler. If it does not work, the
# build is CPU-only.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TRAINCTL_NVCC nvcc HINTS ${CUDAToolkit_ROOT} ENV CUDA_HOME ENV CUDA_PATH
               PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(TRAINCTL_NVCC)
    set(ENV{CUDACXX} ${TRAINCTL_NVCC})
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  # Machine code for Ampere, Hopper and Blackwell data centre devices; the last also as PTX for newer ones.
  set(newest 90a-real 100)
  set(compiler ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX})
  if(compiler)
    list(GET compiler 0 compiler)
    execute_process(COMMAND ${compiler} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
    if(NOT known MATCHES "sm_100")  # CUDA before 12.8
      set(newest 90a-real 90-virtual)
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 80-real ${newest} CACHE STRING "CUDA architectures")
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
include(CheckLanguage)
check_language(CUDA)
find_path(NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT PATHS /usr/local/cuda
          PATH_SUFFIXES include)
find_library(NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} ENV NCCL_ROOT PATHS /usr/local/cuda
             PATH_SUFFIXES lib lib64)

if(CMAKE_CUDA_COMPILER AND NCCL_INCLUDE AND NCCL_LIBRARY)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know it for nvcc
  endif()
  find_package(CUDAToolkit QUIET)
endif()
if(TARGET CUDA::cudart_static AND TARGET CUDA::cublasLt AND
   CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.0)
  set(TRAINCTL_HAVE_CUDA ON)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, "
                 "NCCL ${NCCL_LIBRARY}")
else()
  message(STATUS "CUDA not found: CPU-only build")
endif()

# Tests of the CUDA part. The loader's test runs in every build. Tests labelled gpu need a device and are
# skipped with a message without one.
trainctl_test(NAME cuda_loader LABEL unit THREADS all SOURCES device/cuda_loader_test.cpp LIBS trainctl_device)
if(NOT TRAINCTL_HAVE_CUDA)
  return()
endif()

trainctl_test(NAME cuda_checks LABEL unit
  SOURCES device/cuda_check_test.cpp ${TRAINCTL_CUDA_CHECKS} LIBS trainctl_cuda_options)
trainctl_test(NAME cuda_module LABEL unit SOURCES ops/cuda_module_test.cpp LIBS trainctl_ops)
trainctl_test(NAME cuda_device LABEL gpu SOURCES device/cuda_device_test.cpp LIBS trainctl_device)
trainctl_test(NAME cuda_ops LABEL gpu
  SOURCES ops/cuda_adamw_test.cpp ops/cuda_matmul_test.cpp ops/cuda_rmsnorm_test.cpp
          ops/cuda_device_copy.cpp
  LIBS trainctl_ops)
trainctl_test(NAME cuda_nccl LABEL gpu SOURCES comm/nccl_group_test.cpp LIBS trainctl_comm)
foreach(name module device ops nccl)
  add_dependencies(test_cuda_${name} trainctl_cuda)
endforeach()
set_tests_properties(cuda_device cuda_ops cuda_nccl PROPERTIES
  SKIP_REGULAR_EXPRESSION "skipped: (no CUDA device|the NVIDIA driver)" RUN_SERIAL ON)

# Tests of the CUDA part. The loader's test runs in every build. Tests labelled gpu need a device and are
# skipped with a message without one. Those labelled cuda_on_host are the same on the CUDA module that the
# host's compiler makes: they need CUDA's headers, and neither a device nor nvcc.
trainctl_test(NAME cuda_loader LABEL unit THREADS all SOURCES device/cuda_loader_test.cpp LIBS trainctl_device)
if(on_host)
  trainctl_test(NAME cuda_on_host LABEL unit
    SOURCES cuda_on_host/cuda_on_host_test.cpp cuda_on_host/nccl_on_host_test.cpp cuda_on_host/shared_device_test.cpp
            comm/collectives_body.cpp
    LIBS trainctl_comm)
endif()
if(NOT TRAINCTL_HAVE_CUDA AND NOT on_host)
  return()
endif()

trainctl_test(NAME cuda_device LABEL gpu SOURCES device/cuda_device_test.cpp LIBS trainctl_device)
trainctl_test(NAME cuda_ops LABEL gpu
  SOURCES ops/cuda_adamw_test.cpp ops/cuda_attention_test.cpp ops/cuda_matmul_test.cpp
          ops/cuda_product_rates_test.cpp ops/cuda_rmsnorm_test.cpp
          ops/cuda_device_copy.cpp
  LIBS trainctl_ops)
trainctl_test(NAME cuda_nccl LABEL gpu SOURCES comm/nccl_group_test.cpp LIBS trainctl_comm)
# The tests of all operations, with their operands on the device.
add_test(NAME cuda_all_ops COMMAND test_ops)
set_tests_properties(cuda_all_ops PROPERTIES LABELS gpu TIMEOUT 300 ENVIRONMENT TRAINCTL_TEST_DEVICE=cuda)
set(tests cuda_device cuda_ops cuda_nccl cuda_all_ops)

# test_on_host(NAME program [VARIABLE=value ...]): a program's test on libcuda_on_host.so.
function(test_on_host name program)
  if(NOT TEST ${name})
    add_test(NAME ${name} COMMAND ${program})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "unit;cuda_on_host" TIMEOUT 900
    ENVIRONMENT "TRAINCTL_CUDA_MODULE=$<TARGET_FILE:cuda_on_host>;TRAINCTL_CUDNN_LIBRARY=$<TARGET_FILE:cuda_on_host>;${ARGN}")
  trainctl_schedule(${name})
endfunction()
if(on_host)
  test_on_host(cuda_on_host test_cuda_on_host)
  trainctl_test(NAME cuda_steps_on_host LABEL unit
    SOURCES cuda_on_host/enqueued_test.cpp cuda_on_host/muon_on_device_test.cpp cuda_on_host/planned_on_device_test.cpp cuda_on_host/rank_death_on_host_test.cpp LIBS trainctl_sample_run)
  test_on_host(cuda_steps_on_host test_cuda_steps_on_host)
  add_test(NAME cuda_one_device_on_host COMMAND test_cuda_steps_on_host "[.one_device]")
  test_on_host(cuda_one_device_on_host test_cuda_steps_on_host CUDA_ON_HOST_DEVICES=1)
  test_on_host(cuda_device_on_host test_cuda_device)
  test_on_host(cuda_device_on_host_lazy test_cuda_device CUDA_ON_HOST_ORDER=lazy)
  test_on_host(cuda_device_on_host_eager test_cuda_device CUDA_ON_HOST_ORDER=eager)
  test_on_host(cuda_ops_on_host test_cuda_ops)
  test_on_host(cuda_nccl_on_host test_cuda_nccl)
  test_on_host(cuda_nccl_on_host_lazy test_cuda_nccl CUDA_ON_HOST_ORDER=lazy)
  trainctl_test(NAME cuda_engine_on_host LABEL unit TIMEOUT 1800
    SOURCES cuda_on_host/engine_on_host_test.cpp cuda_on_host/generate_on_host_test.cpp cuda_on_host/graphs_on_host_test.cpp LIBS trainctl_cli_process)
  trainctl_test(NAME cuda_faults_on_host LABEL unit
    SOURCES cuda_on_host/planted_on_host_test.cpp LIBS trainctl_cli_process)
  trainctl_test(NAME cuda_products_on_host LABEL unit
    SOURCES cuda_on_host/products_on_host_test.cpp LIBS trainctl_cli_process)
  trainctl_test(NAME cuda_tools_on_host LABEL unit
    SOURCES cuda_on_host/tools_on_host_test.cpp LIBS trainctl_cli_process)
  add_dependencies(test_cuda_faults_on_host test_cuda_ops)  # finds one of the faults
  add_dependencies(test_cuda_tools_on_host test_cuda_device)  # scripts/gpu_check.sh runs it
  add_dependencies(test_cuda_tools_on_host nvtx_profiler)
  target_compile_definitions(test_cuda_tools_on_host PRIVATE
    TRAINCTL_NVTX_PROFILER="$<TARGET_FILE:nvtx_profiler>")
  if(CUDNN_INCLUDE)
    trainctl_test(NAME cudnn_plans LABEL unit SOURCES cuda_on_host/cudnn_plans_test.cpp LIBS trainctl_run)
    add_dependencies(test_cudnn_plans cuda_on_host driver_without_device)
    set_tests_properties(cudnn_plans PROPERTIES LABELS "unit;cuda_on_host" TIMEOUT 300
      SKIP_REGULAR_EXPRESSION "skipped: cuDNN" ENVIRONMENT "TRAINCTL_CUDA_MODULE=$<TARGET_FILE:cuda_on_host>"
      ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_prepend:$<TARGET_FILE_DIR:driver_without_device>")
  endif()
  foreach(name engine faults products tools)
    target_compile_definitions(test_cuda_${name}_on_host PRIVATE
      TRAINCTL_EMULATED_CUDA="$<TARGET_FILE:cuda_on_host>")
    add_dependencies(test_cuda_${name}_on_host trainctl cuda_on_host)
    test_on_host(cuda_${name}_on_host test_cuda_${name}_on_host)
  endforeach()
  test_on_host(cuda_all_ops_on_host test_ops TRAINCTL_TEST_DEVICE=cuda)
endif()

if(NOT TRAINCTL_HAVE_CUDA)
  set_tests_properties(${tests} PROPERTIES DISABLED ON)
  return()
endif()
trainctl_test(NAME cuda_checks LABEL unit
  SOURCES device/cuda_check_test.cpp ${TRAINCTL_CUDA_CHECKS} LIBS trainctl_cuda_options ${NCCL_LIBRARY})
trainctl_test(NAME cuda_module LABEL unit SOURCES ops/cuda_module_test.cpp LIBS trainctl_ops)
trainctl_test(NAME cuda_kernels LABEL unit SOURCES ops/cuda_kernels_test.cpp LIBS trainctl_base)
target_compile_definitions(test_cuda_kernels PRIVATE TRAINCTL_CUDA_FILE="$<TARGET_FILE:trainctl_cuda>")
set_tests_properties(cuda_kernels PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: the module has no code")
foreach(name module device ops nccl kernels)
  add_dependencies(test_cuda_${name} trainctl_cuda)
endforeach()
set_tests_properties(${tests} PROPERTIES
  SKIP_REGULAR_EXPRESSION "skipped: (no CUDA device|the NVIDIA driver)" RUN_SERIAL ON)
# For scripts/gpu_check.sh of a bundle.
foreach(name cuda_device cuda_ops cuda_nccl ops)
  set_target_properties(test_${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" INSTALL_RPATH_USE_LINK_PATH ON)
  target_link_options(test_${name} PRIVATE LINKER:--disable-new-dtags)
  install(TARGETS test_${name} RUNTIME DESTINATION checks COMPONENT checks EXCLUDE_FROM_ALL)
endforeach()

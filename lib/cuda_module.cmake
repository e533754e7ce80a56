# libtrainctl_cuda.so: all code that needs CUDA, cuBLASLt or NCCL. device/cuda_device.cpp opens it at run
# time; nothing links it. It uses the headers of lib/ but none of its libraries.
set(TRAINCTL_CUDA_CHECKS ${CMAKE_CURRENT_LIST_DIR}/device/cuda_check.cpp
    ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/cublas/check.cpp ${CMAKE_CURRENT_LIST_DIR}/comm/nccl/nccl_check.cpp)
# What the module is made of; tests/cuda_on_host compiles the same for the host.
set(TRAINCTL_CUDA_SOURCES ${TRAINCTL_CUDA_CHECKS}
    ${CMAKE_CURRENT_LIST_DIR}/device/device_cuda.cpp
    ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/kernels.cpp ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/cublas/product.cpp
    ${CMAKE_CURRENT_LIST_DIR}/comm/nccl/nccl_module.cpp)
if(CUDNN_INCLUDE)
  foreach(name attention graph)
    list(APPEND TRAINCTL_CUDA_SOURCES ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/cudnn/${name}.cpp)
  endforeach()
else()
  list(APPEND TRAINCTL_CUDA_SOURCES ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/cudnn/absent.cpp)
endif()
set(TRAINCTL_CUDA_KERNELS)
foreach(name attention_results cross_entropy elementwise matmul norm optimizer rope router rows sums)
  list(APPEND TRAINCTL_CUDA_KERNELS ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/${name}.cu)
endforeach()
# One by one most of their time goes to the headers. The two of attention take longer than all of them, and are
# compiled beside them.
trainctl_unity_file(TRAINCTL_CUDA_KERNELS kernels.cu)
list(PREPEND TRAINCTL_CUDA_KERNELS ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/attention_backward.cu
     ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/attention_forward.cu)
if(NOT TRAINCTL_HAVE_CUDA)
  return()
endif()
# The headers and libraries that the module's sources need, and their warnings.
add_library(trainctl_cuda_options INTERFACE)
target_include_directories(trainctl_cuda_options INTERFACE ${CMAKE_CURRENT_LIST_DIR})
target_include_directories(trainctl_cuda_options SYSTEM INTERFACE ${NCCL_INCLUDE} ${CUDNN_INCLUDE})
target_compile_options(trainctl_cuda_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Werror>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>>:-Wshadow>
  $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wshadow>)
target_link_libraries(trainctl_cuda_options INTERFACE CUDA::cudart_static CUDA::cublasLt
                      ${CMAKE_DL_LIBS})

# NCCL is opened when it is first needed.
get_filename_component(nccl_folder "${NCCL_LIBRARY}" DIRECTORY)
add_library(trainctl_cuda MODULE ${TRAINCTL_CUDA_SOURCES} ${TRAINCTL_CUDA_KERNELS}
                                 ${CMAKE_CURRENT_LIST_DIR}/comm/nccl/nccl_library.cpp)
target_link_libraries(trainctl_cuda PRIVATE trainctl_cuda_options)
trainctl_unity(trainctl_cuda)
# Only the trainctl_cuda_* functions are exported, and no symbols of the libraries.
set(TRAINCTL_CUDA_EXPORTS ${CMAKE_CURRENT_LIST_DIR}/cuda_module.map)
target_link_options(trainctl_cuda PRIVATE LINKER:--no-undefined
                    LINKER:--version-script=${TRAINCTL_CUDA_EXPORTS})
set_target_properties(trainctl_cuda PROPERTIES
  CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
  LINK_DEPENDS ${TRAINCTL_CUDA_EXPORTS}
  CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  BUILD_RPATH "${nccl_folder}"
  INSTALL_RPATH "$ORIGIN;${nccl_folder}" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS trainctl_cuda LIBRARY DESTINATION lib)

# Finds the dependencies. README.md in this directory has versions, package names and reasons.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.9 REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
if(TARGET yaml-cpp AND NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
# Link Protobuf as the static lite library and keep its symbols private. libsentencepiece.so exports its own
# copy of another version, and each would otherwise call the other's functions. Link the whole archive:
# the linker skips a function of an archive if it has already seen it in libsentencepiece.so.
find_package(Protobuf 3.12 REQUIRED)
find_library(PROTOBUF_LITE_ARCHIVE libprotobuf-lite.a REQUIRED)
add_library(trainctl_protobuf INTERFACE)
target_include_directories(trainctl_protobuf SYSTEM INTERFACE ${Protobuf_INCLUDE_DIRS})
target_link_libraries(trainctl_protobuf INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,${PROTOBUF_LITE_ARCHIVE}>
  Threads::Threads
  -Wl,--exclude-libs,libprotobuf-lite.a:libtrainctl_strategy_proto.a:libtrainctl_formats.a)

if(NOT TRAINCTL_PLAIN)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  # Do not use oneDNN's own package file: Debian's requires OpenCL headers, which a CPU build does not need.
  find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  add_library(DNNL::dnnl INTERFACE IMPORTED)
  target_include_directories(DNNL::dnnl INTERFACE ${DNNL_INCLUDE})
  target_link_libraries(DNNL::dnnl INTERFACE ${DNNL_LIBRARY})
endif()

find_path(SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
add_library(trainctl_sentencepiece INTERFACE)
target_include_directories(trainctl_sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE})
target_link_libraries(trainctl_sentencepiece INTERFACE ${SENTENCEPIECE_LIBRARY})

# Only its header: the functions are inlined.
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(trainctl_xxhash INTERFACE)
target_include_directories(trainctl_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE})
# Patterns and normal forms of Hugging Face tokenizers. PCRE2 has the properties of characters since 10.40.
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(trainctl_pcre2 INTERFACE)
target_include_directories(trainctl_pcre2 SYSTEM INTERFACE ${PCRE2_INCLUDE})
target_link_libraries(trainctl_pcre2 INTERFACE ${PCRE2_LIBRARY})
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
add_library(trainctl_utf8proc INTERFACE)
target_include_directories(trainctl_utf8proc SYSTEM INTERFACE ${UTF8PROC_INCLUDE})
target_link_libraries(trainctl_utf8proc INTERFACE ${UTF8PROC_LIBRARY})

# Catch2 2 is one header without a main; Catch2 3 is a library with one. tests/catch.h hides the difference.
find_package(Catch2 REQUIRED)
add_library(trainctl_catch INTERFACE)
if(Catch2_VERSION VERSION_GREATER_EQUAL 3)
  target_link_libraries(trainctl_catch INTERFACE Catch2::Catch2WithMain)
  target_compile_definitions(trainctl_catch INTERFACE TRAINCTL_CATCH3)
else()
  target_link_libraries(trainctl_catch INTERFACE Catch2::Catch2)
  # Assertions without a handler each: what they throw, the test case reports.
  target_compile_definitions(trainctl_catch INTERFACE CATCH_CONFIG_FAST_COMPILE)
endif()

# octavo_module(NAME modules it builds on...): the static library octavo_NAME from src/NAME/**/*.cc.
# octavo_module_test(NAME [libraries...]): one GoogleTest program test_NAME from tests/NAME/*.cc.
# octavo_unity(TARGET sources...): with OCTAVO_UNITY, sources are compiled in the groups that scripts/unity_groups.py finds. A source with compile options
# of its own stays alone (CMake sees to that).
function(octavo_unity target)
  if(NOT OCTAVO_UNITY)
    return()
  endif()
  find_package(Python REQUIRED COMPONENTS Interpreter)
  set(script ${PROJECT_SOURCE_DIR}/scripts/unity_groups.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
  execute_process(COMMAND ${Python_EXECUTABLE} ${script} ${ARGN} OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" lines "${lines}")
  foreach(line ${lines})
    if(line MATCHES "^([0-9]+) (.+)$")
      set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES UNITY_GROUP ${target}_${CMAKE_MATCH_1})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE -Wno-shadow -Wno-subobject-linkage)  # of one file's names by another one's
endfunction()

# octavo_headers(NAME options...): a library without contents that has headers of other projects compiled, for one set of flags.
# octavo_precompile(TARGET HEADERS): TARGET takes them from HEADERS. Both do nothing but with OCTAVO_UNITY and GCC: a source names all headers
# that it needs. A source with compile options of its own needs SKIP_PRECOMPILE_HEADERS.
set(OCTAVO_PRECOMPILE OFF)
if(OCTAVO_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING)
  set(OCTAVO_PRECOMPILE ON)
endif()
set(OCTAVO_HEADERS <algorithm> <array> <bit> <charconv> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <numeric> <optional>
                   <set> <span> <string> <string_view> <tuple> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h> <tl/expected.hpp>)
function(octavo_headers name)
  if(OCTAVO_PRECOMPILE)
    file(WRITE ${PROJECT_BINARY_DIR}/headers.cc.new "// Of precompiled headers.\n")
    file(COPY_FILE ${PROJECT_BINARY_DIR}/headers.cc.new ${PROJECT_BINARY_DIR}/headers.cc ONLY_IF_DIFFERENT)
    add_library(${name} STATIC ${PROJECT_BINARY_DIR}/headers.cc)
    target_link_libraries(${name} PRIVATE fmt::fmt)
    target_compile_options(${name} PRIVATE ${ARGN})
    target_precompile_headers(${name} PRIVATE ${OCTAVO_HEADERS})
  endif()
endfunction()
function(octavo_precompile target headers)
  if(OCTAVO_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# Modules without loops over elements that are timed, and without the planner's search: a quarter less time to compile.
set(OCTAVO_LIGHT_MODULES onnx cuda report tune api)
function(octavo_module name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)  # a module that is only headers so far
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cc "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cc)
  endif()
  add_library(octavo_${name} STATIC ${sources})
  octavo_unity(octavo_${name} ${sources})
  if(name IN_LIST OCTAVO_LIGHT_MODULES)
    target_compile_options(octavo_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    octavo_precompile(octavo_${name} octavo_headers_o1)
  elseif(NOT name STREQUAL "cpu")  # its flags are other ones
    octavo_precompile(octavo_${name} octavo_headers)
  endif()
  target_include_directories(octavo_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  foreach(module ${ARGN})
    target_link_libraries(octavo_${name} PUBLIC octavo_${module})
  endforeach()
endfunction()

function(octavo_module_test name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*.cc)
  if(sources AND TARGET octavo_${name})
    add_executable(test_${name} ${sources})
    target_link_libraries(test_${name} PRIVATE octavo_${name} ${ARGN} GTest::gtest GTest::gtest_main)
    target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(test_${name} PRIVATE OCTAVO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_compile_options(test_${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # a quarter less time to compile
    octavo_unity(test_${name} ${sources})
    octavo_precompile(test_${name} octavo_test_headers)
    include(GoogleTest)
    set(cost 0)
    if(name STREQUAL "api")  # has the longest tests: first, so that no core waits for one in the end
      set(cost 20)
    endif()
    gtest_discover_tests(test_${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 900 LABELS ${name} COST ${cost})
  endif()
endfunction()
